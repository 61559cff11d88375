//! `stockade help TOPIC`.

use std::fmt::Write as _;

use stockade_core::{guarantee::Guarantee, status::Status};

use crate::{cli::HelpTopic, error::CliError, render};

pub(crate) fn run(topic: HelpTopic) -> Result<u8, CliError> {
    render::out(&match topic {
        HelpTopic::ExitCodes => exit_codes(),
        HelpTopic::Guarantees => guarantees(),
    })?;
    Ok(0)
}

fn exit_codes() -> String {
    let mut rows: Vec<(u8, Vec<&str>)> = vec![(64, vec!["usage error (nothing created, no receipt)"])];
    for s in Status::ALL {
        match rows.iter_mut().find(|(code, _)| *code == s.exit_code()) {
            Some((_, names)) => names.push(s.id()),
            None => rows.push((s.exit_code(), vec![s.id()])),
        }
    }
    rows.sort_by_key(|(code, _)| *code);
    let mut text = String::from("Exit codes of `stockade run`:\n\n");
    for (code, names) in rows {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  {code:>3}  {}", names.join(", "));
    }
    text.push_str(
        "\nOther commands: 0 ok, 64 usage, 65 verification failed, 69 not reachable, 70 a check failed, 71 host cannot, \
         72 pin differs, 74 storage, 130 cancelled.\n",
    );
    text
}

fn guarantees() -> String {
    let mut text = String::from("Guarantees of a fence:\n\n");
    for g in Guarantee::ALL {
        let _ = writeln!(text, "  {:<20} {}", g.id(), g.meaning());
    }
    text
}
