//! What the four real agents get: the whole prompt, at once, and nothing of the caller's surroundings.
//!
//! Everything is looked at where it arrives: prompts, models and efforts on the wire, variables by a tool of the agent. Needs
//! root, to become another user.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test: a panic is how it fails")]

use std::{collections::BTreeSet, time::Duration};

use serde_json::json;
use stockade_core::mode::AccessMode;
use stockade_tests::{Agent, Caller, ScriptedModel, World, agent, clutter::Clutter, outside};

/// One more than fits into an argument of the kernel, and one that fits.
const AN_ARGUMENT: usize = 131_072;

/// Variables that any program gets.
const CORE: [&str; 8] = ["HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "USER"];
/// What a shell sets for itself.
const OF_SHELL: [&str; 3] = ["PWD", "SHLVL", "_"];

/// What Claude Code sets for its tools.
const OF_CLAUDE: [&str; 16] = [
    "AI_AGENT",
    "CLAUDECODE",
    "CLAUDE_CODE_CHILD_NOTES_DIR",
    "CLAUDE_CODE_CHILD_SESSION",
    "CLAUDE_CODE_ENTRYPOINT",
    "CLAUDE_CODE_EXECPATH",
    "CLAUDE_CODE_MESSAGING_SOCKET",
    "CLAUDE_CODE_MESSAGING_TOKEN",
    "CLAUDE_CODE_SAFE_MODE",
    "CLAUDE_CODE_SESSION_ATTENDED",
    "CLAUDE_CODE_SESSION_ID",
    "CLAUDE_EFFORT",
    "CLAUDE_PID",
    "COREPACK_ENABLE_AUTO_PIN",
    "GIT_EDITOR",
    "NoDefaultCurrentDirectoryInExePath",
];

/// What Codex sets for its tools.
const OF_CODEX: [&str; 13] = [
    "CODEX_APPLY_PATCH_PRESERVE_LINE_ENDINGS",
    "CODEX_CI",
    "CODEX_SESSION_ID",
    "CODEX_THREAD_ID",
    "CODEX_TOOL_CALL_ID",
    "CODEX_VERSION",
    "COLORTERM",
    "GH_PAGER",
    "GIT_PAGER",
    "LC_ALL",
    "LC_CTYPE",
    "NO_COLOR",
    "PAGER",
];

/// What Grok sets for its tools.
const OF_GROK: [&str; 24] = [
    "AWS_PAGER",
    "CARGO_TERM_PROGRESS_WHEN",
    "CARGO_TERM_PROGRESS_WIDTH",
    "CI",
    "CLICOLOR",
    "CLICOLOR_FORCE",
    "COLORTERM",
    "FORCE_COLOR",
    "GH_PAGER",
    "GIT_EDITOR",
    "GIT_PAGER",
    "GIT_SEQUENCE_EDITOR",
    "GIT_TERMINAL_PROMPT",
    "GPG_TTY",
    "GRADLE_OPTS",
    "GROK_AGENT",
    "GROK_SESSION_ID",
    "MANPAGER",
    "MAVEN_OPTS",
    "NO_COLOR",
    "NPM_CONFIG_PROGRESS",
    "PAGER",
    "PIP_PROGRESS_BAR",
    "SYSTEMD_PAGER",
];

/// What OpenCode sets for its tools.
const OF_OPENCODE: [&str; 3] = ["AGENT", "OPENCODE", "OPENCODE_PID"];

/// What stands before the names of the variables in the output of a tool.
const NAMES: &str = "names: ";

/// A command that tells the names of its variables, how many of its variables hold something foreign, and
/// whether the socket of the SSH agent is there. Its own text holds nothing foreign.
fn look(socket: &str) -> String {
    format!(
        "printf '{NAMES}'; command env -0 | tr '\\0' '\\n' | cut -d= -f1 | sort | tr '\\n' ' '; echo; \
         env | command grep -c -e f''oreign -e seatbelt -e 41999; \
         if [ -e {socket} ]; then echo visible; else echo absent; fi"
    )
}

/// A prompt of this length. Grok trims white space at both ends, so that there is none.
fn prompt(length: usize) -> String {
    let head = "--help ' \" `id` $(id) \\ %s {{x}}\n\n\u{2028}\u{1f980}\t";
    let filler = "All work and no play makes Jack a dull boy.\n";
    let room = length - head.len() - 1;
    let body: String = filler.chars().cycle().take(room).collect();
    let prompt = format!("{head}{body}.");
    assert_eq!(prompt.len(), length);
    prompt
}

/// Which variables of the agent its tools get.
#[derive(Clone, Copy)]
enum Inherited {
    /// All that are listed in the receipt as given to it.
    All,
    /// Those that any program gets.
    Core,
}

/// Plays prompts of these lengths, as one caller after the other. The agent sets these variables for its tools.
fn gets_only_what_it_is_given(agent: Agent, lengths: &[usize], inherited: Inherited, sets: &[&str]) {
    for (length, caller) in lengths.iter().zip(Caller::both().into_iter().cycle()) {
        let around = Clutter::around(World::with_providers(&caller));
        let world = &around.world;
        let look = agent.shell(&look(around.socket().to_str().unwrap()));
        let model = ScriptedModel::steps(world, &json!([look]));
        let prompt = prompt(*length);
        let file = world.write("prompt with spaces.md", &prompt);
        let call =
            agent.run(world, AccessMode::ReadOnly, &model.url).args(&["--effort", "high", "--env", "WANTED"]);
        let call = call.env("WANTED", "yes").with_prompt(&file);
        let ended = agent::end(around.surround(call)).expect_code(0);
        let what = format!("{} as {}, {length} bytes: {}", agent.name(), caller.name, ended.stderr);

        let requests = model.requests();
        let turn = requests.iter().find(|r| r["class"] == "main").unwrap_or_else(|| panic!("{what}"));
        let sent = agent.prompt_in(turn);
        assert_eq!(sent.len(), prompt.len(), "{what}");
        assert!(sent == prompt, "the prompt changed on its way: {what}");
        for request in &requests {
            assert_eq!(request["model"], agent.model(), "{what}");
            let foreign = request["headers"].to_string() + &request["body"].to_string();
            assert!(!foreign.contains("foreign"), "{what}");
        }
        let receipt = world.receipt("r");
        assert_eq!(receipt["modelIdentity"]["effortsSeen"], json!(["high"]), "{what}");
        assert_eq!(receipt["modelVerified"], true, "{what}");

        let told = model.tool_result(0);
        let mut lines = told.lines().skip_while(|line| !line.contains(NAMES));
        let names =
            lines.next().and_then(|line| line.split_once(NAMES)).unwrap_or_else(|| panic!("{told}")).1;
        let seen: BTreeSet<&str> = names.split_whitespace().collect();
        let passed: Vec<&str> = match inherited {
            Inherited::Core => CORE.to_vec(),
            Inherited::All => {
                let passed = receipt["environment"]["passed"].as_array().unwrap();
                passed.iter().map(|name| name.as_str().unwrap()).collect()
            }
        };
        let expected: BTreeSet<&str> =
            passed.into_iter().chain(OF_SHELL).chain(sets.iter().copied()).collect();
        assert_eq!(seen, expected, "{what}");
        assert_eq!(lines.take(2).map(str::trim).collect::<Vec<_>>(), ["0", "absent"], "{told}");
        around.assert_untouched();
        outside::wait_for_no_process_fenced_for(world, Duration::from_secs(2));
    }
}

#[test]
fn claude_gets_the_whole_prompt_and_nothing_else() {
    let lengths = [AN_ARGUMENT - 1, AN_ARGUMENT, 1_500_000];
    gets_only_what_it_is_given(Agent::Claude, &lengths, Inherited::All, &OF_CLAUDE);
}

#[test]
fn codex_gets_the_whole_prompt_and_nothing_else() {
    let lengths = [AN_ARGUMENT - 1, AN_ARGUMENT, 1_048_576];
    gets_only_what_it_is_given(Agent::Codex, &lengths, Inherited::Core, &OF_CODEX);
}

/// Codex itself reads no more.
#[test]
fn codex_is_not_started_with_a_prompt_that_it_would_refuse() {
    for caller in Caller::both() {
        let world = World::with_providers(&caller);
        let file = world.write("out/long.md", prompt(1_500_000));
        let call = Agent::Codex.run(&world, AccessMode::ReadOnly, "http://127.0.0.1:9/v1").with_prompt(&file);
        let ended = call.end().expect_code(64);
        assert!(ended.stderr.contains("1500000 bytes"), "{}", ended.stderr);
        assert!(!world.path("out/r.receipt.json").exists(), "nothing was created");
    }
}

#[test]
fn grok_gets_the_whole_prompt_and_nothing_else() {
    let lengths = [AN_ARGUMENT - 1, AN_ARGUMENT, 1_500_000];
    gets_only_what_it_is_given(Agent::Grok, &lengths, Inherited::Core, &OF_GROK);
}

#[test]
fn opencode_gets_the_whole_prompt_and_nothing_else() {
    let lengths = [AN_ARGUMENT - 1, AN_ARGUMENT, 1_500_000];
    gets_only_what_it_is_given(Agent::Opencode, &lengths, Inherited::All, &OF_OPENCODE);
}
