//! Node drivers: the plugin protocol and the built-in drivers.
