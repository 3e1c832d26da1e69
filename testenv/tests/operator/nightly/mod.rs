//! What takes long and rarely finds something. `make nightly` runs these tests.

mod chaos;
mod surge;
mod tenants;
mod values;
