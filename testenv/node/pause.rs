//! What runs in the container that holds a pod's network: nothing.

fn main() {
    loop {
        std::thread::park();
    }
}
