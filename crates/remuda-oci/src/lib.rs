//! Container images made of this program, without Docker.
//!
//! The cluster agent is this program, so a server needs nobody to build or publish an image of it: it has all that is
//! in one. [`agent::parts`] says what that is, [`Image::build`] makes layers, configuration and manifest of it, and
//! [`archive`] writes them as one file that `ctr images import`, `docker load`, K3s and RKE2 read.
//!
//! The same parts make the same bytes, wherever and whenever: times, owners and order are fixed.
//!
//! * [`executable`]: what a file of unknown origin is: ELF or PE, for which processor, what it needs to run.
//! * [`mark`](mod@mark): whether it is this program, and of which version.
//! * [`libraries`]: where what it needs is on this host.
//! * [`reference`]: names of images.

pub mod agent;
pub mod archive;
mod digest;
pub mod executable;
pub mod image;
mod layer;
pub mod libraries;
pub mod mark;
pub mod reference;

pub use self::{
    digest::{Digest, sha256_of},
    executable::{Architecture, Executable, Format},
    image::{Image, ImageError},
    layer::{Entry, Layer, What},
    mark::Version,
    reference::Reference,
};
