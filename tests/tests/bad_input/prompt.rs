//! Prompts and files that are read.

use std::{fs, os::unix::fs::PermissionsExt as _};

use stockade_tests::{Caller, World};

use super::{mistake, order, refused, with_errno};

#[test]
fn a_prompt_that_is_not_there_or_says_nothing() {
    for caller in Caller::both() {
        let world = World::new(&caller);
        let missing = world.path("out/missing.md");
        let message = format!("prompt `{}` cannot be read: no such file or directory", missing.display());
        let error = mistake(
            "prompt-unreadable",
            "prompt",
            Some(&missing),
            &message,
            "check the path and its permissions",
        );
        refused(
            &world,
            order(&world, &[("--prompt", missing.to_str())]),
            64,
            &with_errno(error, libc::ENOENT),
        );

        let says_nothing = "write what the agent is to do into the file named by `--prompt`";
        let error = mistake("prompt-empty", "prompt", None, "the prompt is empty", says_nothing);
        for text in ["", " \n\t\n"] {
            let empty = world.write("out/empty.md", text);
            refused(&world, order(&world, &[("--prompt", empty.to_str())]), 64, &error);
            refused(&world, order(&world, &[("--prompt", Some("-"))]).stdin(text.as_bytes()), 64, &error);
        }

        let folder = world.path("ws");
        let message = format!("prompt `{}` is not a regular file", folder.display());
        let error = mistake("prompt-no-file", "prompt", Some(&folder), &message, "name a file");
        refused(&world, order(&world, &[("--prompt", folder.to_str())]), 64, &error);
    }
}

#[test]
fn a_file_that_the_caller_may_not_read() {
    let world = World::new(&Caller::fresh_user());
    let of_root = world.path("out/of-root.md");
    fs::write(&of_root, "secret of root\n").unwrap();
    fs::set_permissions(&of_root, fs::Permissions::from_mode(0o600)).unwrap();
    for (flag, what) in [("--prompt", "prompt"), ("--instructions", "instructions")] {
        let message = format!("{what} `{}` cannot be read: permission denied", of_root.display());
        let code = format!("{what}-unreadable");
        let error = mistake(&code, what, Some(&of_root), &message, "check the path and its permissions");
        refused(&world, order(&world, &[(flag, of_root.to_str())]), 64, &with_errno(error, libc::EACCES));
    }
}

#[test]
fn a_prompt_over_a_limit() {
    const REMEDY: &str = "put the material into files of the workspace and name them in the prompt";
    for caller in Caller::both() {
        let world = World::new(&caller);
        let big = world.write("out/big.md", vec![b'x'; 8 * 1024 * 1024 + 1]);
        let message = format!("prompt `{}` has 8388609 bytes; at most 8388608 are taken", big.display());
        let error = mistake("prompt-too-large", "prompt", Some(&big), &message, REMEDY);
        refused(&world, order(&world, &[("--prompt", big.to_str())]), 64, &error);

        let message = "the prompt has 8388609 bytes; Grok Build takes at most 8388608";
        let error = mistake("prompt-too-large", "prompt", None, message, REMEDY);
        let piped = order(&world, &[("--prompt", Some("-"))]).stdin(&fs::read(&big).unwrap());
        refused(&world, piped, 64, &error);

        let built_in = include_str!("../../../crates/stockade-providers/profiles/grok.toml");
        let limit = "prompt_limit_bytes = 8_388_608";
        assert!(built_in.contains(limit), "the profile states its limit in another way now");
        let profile = world.write("out/small.toml", built_in.replace(limit, "prompt_limit_bytes = 100"));
        let medium = world.write("out/medium.md", vec![b'x'; 101]);
        let message = "the prompt has 101 bytes; Grok Build takes at most 100";
        let error = mistake("prompt-too-large", "prompt", None, message, REMEDY);
        let call = order(&world, &[("--prompt", medium.to_str()), ("--profile", profile.to_str())]);
        refused(&world, call, 64, &error);
    }
}
