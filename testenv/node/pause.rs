//! The program in the container that holds a pod's network: it only waits.

fn main() {
    loop {
        std::thread::park();
    }
}
