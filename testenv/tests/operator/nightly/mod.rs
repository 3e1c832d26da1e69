//! What takes long and rarely finds something. `make nightly` runs these tests.

mod chaos;
mod tenants;
mod values;
