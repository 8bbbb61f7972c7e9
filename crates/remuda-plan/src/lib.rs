//! The plan of a node: its wire format, its bytes and its checksum.
