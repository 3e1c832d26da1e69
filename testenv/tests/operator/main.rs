//! What the operator promises, on the real API server behind the real kubectl proxy, with RBAC on.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bad_input;
mod changes;
mod chaos;
mod crashes;
mod every_request;
mod fields;
mod install;
mod rights;
mod schema;
mod selection;
mod world;
