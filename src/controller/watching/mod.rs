//! What the watches and polls show, from the requests to the values of the keepers.

mod dispatcher;
mod index;
mod namespaces;
mod polls;
mod readiness;
mod scope;
mod watches;

pub(crate) use self::dispatcher::{Dispatcher, Instructions};
pub(crate) use self::index::Instruction;
pub use self::namespaces::{Excluded, NamespaceSelector, Namespaces};
pub use self::readiness::Readiness;
pub(crate) use self::watches::Watches;
