//! Machines made of Linux namespaces, and the driver that makes them.
