//! Git repositories: what a folder is, without running git; the private git folder that stands in a fence for the real
//! one; the scripts that run inside; and the few calls of git outside, in the caller's repository alone.
//!
//! Git outside never opens a folder that an agent wrote. What comes out of a fence is a bundle on a pipe, checked object
//! by object when it is fetched.

mod batch;
mod checkout;
mod error;
mod files;
mod host;
mod identity;
mod layout;
mod obstacle;
mod private;
mod program;
mod refs;
pub mod script;

pub use checkout::{Checkout, Owner};
pub use error::GitError;
pub use host::{Host, OwnRefs};
pub use identity::author;
pub use layout::{Head, Repository, discover, is_git_folder};
pub use obstacle::{Extent, Obstacle};
pub use private::{Content, PrivateFolder};
pub use program::find_trusted;
pub use refs::{Refs, is_object, is_ref_name};
