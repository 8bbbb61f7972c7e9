//! The two distributions this one stands in for.

pub use remuda_distro::Distro as Distribution;
