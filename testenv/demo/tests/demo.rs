//! The demo in the simulated cluster does what it says.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::process::Command;

#[test]
fn an_edit_replaces_all_pods_and_a_revert_only_the_bad_one() {
    let output = Command::new(env!("CARGO_BIN_EXE_demo")).arg("simulated").output().unwrap();
    let (text, error) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success(), "{text}{error}");
    let said = [
        "Real: ",
        "Simulated: ",
        "All 3 pods are replaced",
        "Only the pod with the bad content was replaced",
        "KEEP=1",
    ];
    for words in said {
        assert!(text.contains(words), "{words}: {text}");
    }
}
