//! Patches and server-side apply: JSON Patch, merge patch, strategic merge, managed fields
