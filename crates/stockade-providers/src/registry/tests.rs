use std::collections::BTreeMap;

use serde::Deserialize;
use stockade_core::{
    mode::AccessMode,
    profile::{Dialect, Profile, PromptDelivery, SandboxNeed},
    template,
};

use super::*;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Digests {
    profile: Vec<Digest>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Digest {
    name: String,
    version: u32,
    sha256: String,
}

fn grok() -> Profile {
    find("grok").unwrap().load().unwrap().profile
}

#[test]
fn every_built_in_profile_is_sound_and_named_as_listed() {
    for b in built_in() {
        let loaded = b.load().unwrap_or_else(|e| panic!("{}: {e}", b.name));
        assert_eq!(loaded.profile.name, b.name);
    }
    assert_eq!(find("nobody"), None);
}

#[test]
fn a_changed_profile_has_a_new_version_and_a_recorded_digest() {
    let table: Digests = toml::from_str(include_str!("../../profiles/digests.toml")).unwrap();
    for b in built_in() {
        let loaded = b.load().unwrap();
        let mut of_name: Vec<_> = table.profile.iter().filter(|d| d.name == b.name).collect();
        let versions: Vec<_> = of_name.iter().map(|d| d.version).collect();
        assert!(versions.windows(2).all(|w| w[0] < w[1]), "{}: versions {versions:?}", b.name);
        let last = of_name.pop().unwrap_or_else(|| panic!("{} is not in digests.toml", b.name));
        assert_eq!(
            (last.version, last.sha256.as_str()),
            (loaded.profile.version, loaded.digest.as_str()),
            "the profile of {} changed: count its version up and add the digest to digests.toml",
            b.name
        );
    }
}

/// The argv as `plan()` puts it together.
fn argv(mode: AccessMode, sandbox: &[String], more: &[&[String]]) -> Vec<String> {
    let p = grok();
    let l = &p.launch;
    let own = match mode {
        AccessMode::ReadOnly => &l.read_only_argv,
        AccessMode::IsolatedWrite => &l.isolated_write_argv,
    };
    let values: BTreeMap<&str, String> = [
        ("cwd", "/w"),
        ("session", "01a22ca0-56e9-7d0a-8382-f52e7f7b47a4"),
        ("model", "grok-4.6"),
        ("effort", "low"),
        ("prompt_file", "/home/agent/prompt.md"),
        ("instructions", "- be brief"),
    ]
    .map(|(k, v)| (k, v.to_owned()))
    .into();
    let parts = l.argv.iter().chain(sandbox).chain(own).chain(more.iter().copied().flatten());
    parts.map(|part| template::fill(part, &values).unwrap()).collect()
}

const COMMON: [&str; 17] = [
    "--disallowed-tools",
    "Agent,search_tool,use_tool",
    "--no-subagents",
    "--disable-web-search",
    "--permission-mode",
    "bypassPermissions",
    "--verbatim",
    "--output-format",
    "streaming-messages-json",
    "--cwd",
    "/w",
    "-s",
    "01a22ca0-56e9-7d0a-8382-f52e7f7b47a4",
    "--model",
    "grok-4.6",
    "--prompt-file",
    "/home/agent/prompt.md",
];

#[test]
fn grok_is_started_with_exactly_these_arguments() {
    let l = grok().launch;
    let expect = |tail: &[&str]| COMMON.iter().chain(tail).map(|s| (*s).to_owned()).collect::<Vec<_>>();
    let read = "read_file,grep,list_dir,run_terminal_cmd";
    let write = "read_file,grep,list_dir,run_terminal_cmd,search_replace";
    assert_eq!(
        argv(AccessMode::ReadOnly, &l.replace_argv, &[]),
        expect(&["--sandbox", "off", "--tools", read])
    );
    assert_eq!(
        argv(AccessMode::IsolatedWrite, &l.replace_argv, &[]),
        expect(&["--sandbox", "off", "--tools", write])
    );
    assert_eq!(
        argv(AccessMode::ReadOnly, &l.keep_read_only_argv, &[]),
        expect(&["--sandbox", "read-only", "--tools", read])
    );
    assert_eq!(
        argv(AccessMode::IsolatedWrite, &l.keep_isolated_write_argv, &[&l.effort_argv, &l.instructions_argv]),
        expect(&[
            "--sandbox",
            "workspace",
            "--tools",
            write,
            "--reasoning-effort",
            "low",
            "--rules=- be brief"
        ])
    );
}

#[test]
fn grok_is_kept_silent_by_its_private_configuration() {
    let p = grok();
    let values: BTreeMap<&str, String> = [
        ("model", "grok-4.6"),
        ("base_url", "http://127.0.0.1:8080/v1"),
        ("placeholder_key", "stockade-placeholder"),
        ("proxy_toml", "{ HTTPS_PROXY = \"http://127.0.0.1:3128\" }"),
    ]
    .map(|(k, v)| (k, v.to_owned()))
    .into();
    assert_eq!(p.home_files.len(), 1);
    assert_eq!(p.home_files[0].path, ".grok/config.toml");
    let config: toml::Table =
        template::fill(&p.home_files[0].content, &values).unwrap().parse().expect("configuration is TOML");
    let model = config["model"]["grok-4.6"].as_table().unwrap();
    assert_eq!(model["base_url"].as_str(), Some("http://127.0.0.1:8080/v1"));
    assert_eq!(model["api_key"].as_str(), Some("stockade-placeholder"));
    assert_eq!(config["models"]["session_summary"].as_str(), Some("grok-4.6"));
    assert_eq!(config["models"]["max_retries"].as_integer(), Some(0));
    for (table, key) in [
        ("cli", "auto_update"),
        ("features", "telemetry"),
        ("features", "feedback"),
        ("features", "remote_fetch"),
        ("features", "managed_config"),
        ("features", "turn_summary"),
        ("telemetry", "trace_upload"),
        ("telemetry", "mixpanel_enabled"),
        ("subagents", "enabled"),
        ("memory", "enabled"),
        ("workflows", "enabled"),
    ] {
        assert_eq!(config[table][key].as_bool(), Some(false), "{table}.{key}");
    }
    let set = &config["shell_environment_policy"]["set"];
    assert_eq!(set["HTTPS_PROXY"].as_str(), Some("http://127.0.0.1:3128"), "tools are told of the proxy");
    assert_eq!(config["toolset"]["bash"]["login_shell_capture"].as_bool(), Some(false));
    assert_eq!(p.launch.env["GROK_DISABLE_AUTOUPDATER"], "1");
    assert_eq!(p.launch.env["GROK_HOME"], "{home}/.grok");
    for name in ["XAI_API_KEY", "GROK_FOLDER_TRUST", "GROK_SANDBOX"] {
        assert!(!p.launch.env.contains_key(name), "{name}");
    }
}

#[test]
fn grok_has_the_wire_and_the_needs_that_were_measured() {
    let p = grok();
    assert_eq!(p.launch.prompt, PromptDelivery::File { path: "prompt.md".to_owned() });
    assert_eq!(p.output.dialect, Dialect::GrokMessages);
    assert_eq!(p.sandbox.needs, [SandboxNeed::Bubblewrap, SandboxNeed::Landlock, SandboxNeed::Nesting]);
    let turn = &p.wire.classes[0];
    assert_eq!(turn.tools(AccessMode::ReadOnly), ["run_terminal_command", "read_file", "list_dir", "grep"]);
    assert_eq!(
        turn.tools(AccessMode::IsolatedWrite),
        ["run_terminal_command", "read_file", "list_dir", "grep", "search_replace"]
    );
    assert_eq!(p.wire.classes[1].tools(AccessMode::ReadOnly), ["session_title"]);
    assert_eq!(p.wire.stop_header, Some(("x-should-retry".to_owned(), "false".to_owned())));
}

#[test]
fn claude_is_started_with_exactly_these_arguments() {
    let p = find("claude").unwrap().load().unwrap().profile;
    let l = &p.launch;
    let common = [
        "--print",
        "--input-format",
        "text",
        "--output-format",
        "stream-json",
        "--verbose",
        "--model",
        "{model}",
        "--session-id",
        "{session}",
        "--no-session-persistence",
        "--setting-sources",
        "",
        "--safe-mode",
        "--strict-mcp-config",
        "--disable-slash-commands",
        "--permission-mode",
        "bypassPermissions",
        "--permission-prompts",
        "none",
    ];
    assert_eq!(l.argv, common);
    assert_eq!(l.read_only_argv, ["--tools", "Bash,Glob,Grep,Read"]);
    assert_eq!(l.isolated_write_argv, ["--tools", "Bash,Edit,Glob,Grep,Read,Write"]);
    assert_eq!(l.keep_isolated_write_argv, ["--settings", "{home}/.claude/sandbox.json"]);
    assert_eq!(l.replace_argv, [""; 0]);
    assert_eq!(l.effort_argv, ["--effort", "{effort}"]);
    assert_eq!(l.instructions_argv, ["--append-system-prompt-file", "{instructions_file}"]);
    assert_eq!(l.prompt, PromptDelivery::Stdin);
    for mode in AccessMode::ALL {
        let argv = match mode {
            AccessMode::ReadOnly => &l.read_only_argv,
            AccessMode::IsolatedWrite => &l.isolated_write_argv,
        };
        assert_eq!(argv[1].split(',').collect::<Vec<_>>(), p.wire.classes[0].tools(mode), "as on the wire");
    }
}

#[test]
fn claude_is_silent_unconfigured_and_never_root() {
    let p = find("claude").unwrap().load().unwrap().profile;
    let env = &p.launch.env;
    for name in [
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
        "DISABLE_AUTOUPDATER",
        "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS",
        "CLAUDE_CODE_DISABLE_CLAUDE_MDS",
        "CLAUDE_CODE_DISABLE_AUTO_MEMORY",
        "CLAUDE_CODE_NO_MODEL_FALLBACK",
        "CLAUDE_CODE_DISABLE_REFUSAL_FALLBACK",
    ] {
        assert_eq!(env[name], "1", "{name}");
    }
    assert_eq!(
        (env["ANTHROPIC_BASE_URL"].as_str(), env["ANTHROPIC_API_KEY"].as_str()),
        ("{base_origin}", "{placeholder_key}")
    );
    for name in [
        "IS_SANDBOX",
        "CLAUDE_CODE_BUBBLEWRAP",
        "CLAUDE_CODE_EFFORT_LEVEL",
        "CLAUDE_CODE_SUBPROCESS_ENV_SCRUB",
    ] {
        assert!(!env.contains_key(name), "{name}");
    }
    let file = p.home_files.iter().find(|file| file.path == ".claude/sandbox.json").unwrap();
    let settings = template::fill(&file.content, &BTreeMap::new()).unwrap();
    let settings: serde_json::Value = serde_json::from_str(&settings).unwrap();
    assert_eq!(settings["sandbox"]["failIfUnavailable"], true);
    assert_eq!(settings["sandbox"]["allowUnsandboxedCommands"], false);
    assert_eq!(p.sandbox.needs, [SandboxNeed::Bubblewrap, SandboxNeed::Socat, SandboxNeed::Nesting]);
    assert_eq!(p.sandbox.residue, [".claude/.cc-writes"]);
    assert_eq!(
        (p.stop.signals.as_slice(), p.stop.grace_ms),
        (["INT", "TERM"].map(str::to_owned).as_slice(), 2500)
    );
}

fn codex() -> Profile {
    find("codex").unwrap().load().unwrap().profile
}

#[test]
fn codex_is_started_with_exactly_these_arguments() {
    let p = codex();
    let values: BTreeMap<&str, String> =
        [("cwd", "/w"), ("model", "gpt-5.5"), ("effort", "low")].map(|(k, v)| (k, v.to_owned())).into();
    let filled = |lists: &[&[String]]| {
        let parts = lists.iter().copied().flatten();
        parts.map(|part| template::fill(part, &values).unwrap()).collect::<Vec<_>>()
    };
    let l = &p.launch;
    assert_eq!(
        filled(&[&l.argv, &l.effort_argv]),
        [
            "exec",
            "--json",
            "--strict-config",
            "--ignore-rules",
            "--skip-git-repo-check",
            "--color",
            "never",
            "--cd",
            "/w",
            "--model",
            "gpt-5.5",
            "-",
            "-c",
            "model_reasoning_effort=\"low\"",
        ]
    );
    assert_eq!(l.keep_read_only_argv, ["--sandbox", "read-only"]);
    assert_eq!(l.keep_isolated_write_argv, ["--sandbox", "workspace-write"]);
    assert_eq!(l.replace_argv, ["--sandbox", "danger-full-access"]);
    assert_eq!((l.read_only_argv.len(), l.isolated_write_argv.len(), l.instructions_argv.len()), (0, 0, 0));
    assert_eq!(l.prompt, PromptDelivery::Stdin);
    assert_eq!(l.env["CODEX_HOME"], "{home}/.codex");
}

#[test]
fn codex_is_kept_silent_by_its_private_configuration() {
    let p = codex();
    let text = "Say \"yes\" to\\nothing,\nand be brief.";
    let values: BTreeMap<&str, String> = [
        ("base_url", "http://127.0.0.1:8080/v1".to_owned()),
        ("placeholder_key", "stockade-placeholder".to_owned()),
        ("proxy_toml", "{ HTTPS_PROXY = \"http://127.0.0.1:3128\" }".to_owned()),
        ("instructions_toml", template::toml_string(text)),
    ]
    .into();
    assert_eq!(p.home_files.len(), 1);
    assert_eq!(p.home_files[0].path, ".codex/config.toml");
    let config: toml::Table =
        template::fill(&p.home_files[0].content, &values).unwrap().parse().expect("configuration is TOML");
    assert_eq!(config["developer_instructions"].as_str(), Some(text));
    assert_eq!(config["web_search"].as_str(), Some("disabled"));
    let provider = &config["model_providers"][config["model_provider"].as_str().unwrap()];
    assert_eq!(provider["base_url"].as_str(), Some("http://127.0.0.1:8080/v1"));
    assert_eq!(provider["experimental_bearer_token"].as_str(), Some("stockade-placeholder"));
    let retries =
        ["request_max_retries", "stream_max_retries"].map(|key| provider[key].as_integer().unwrap());
    assert_eq!(retries, [0, 2]);
    for (table, key) in [
        ("agents", "enabled"),
        ("analytics", "enabled"),
        ("feedback", "enabled"),
        ("skills", "include_instructions"),
        ("shell_environment_policy", "ignore_default_excludes"),
    ] {
        assert_eq!(config[table][key].as_bool(), Some(false), "{table}.{key}");
    }
    assert!(config["features"].as_table().unwrap().values().all(|value| value.as_bool() == Some(false)));
    for feature in ["apps", "hooks", "memories", "plugins", "unbounded_connection_retries"] {
        assert!(config["features"].get(feature).is_some(), "{feature}");
    }
    // Trust is what would let a repository configure it.
    assert!(config.get("projects").is_none());
    let set = &config["shell_environment_policy"]["set"];
    assert_eq!(set["HTTPS_PROXY"].as_str(), Some("http://127.0.0.1:3128"), "tools are told of the proxy");
}

#[test]
fn codex_has_the_wire_and_the_needs_that_were_measured() {
    let p = codex();
    assert_eq!(p.output.dialect, Dialect::CodexExec);
    assert_eq!(p.sandbox.needs, [SandboxNeed::Nesting]);
    assert_eq!(
        (p.wire.model_paths.as_slice(), p.wire.stop_status),
        (&["/v1/responses".to_owned()][..], Some(400))
    );
    let asks = |tool: &&str| tool.contains("web_search") || tool.contains("mcp") || tool.contains("agent");
    for class in &p.wire.classes {
        assert_eq!(class.name, "turn");
        assert_eq!(class.tools(AccessMode::ReadOnly), class.tools(AccessMode::IsolatedWrite));
        assert_eq!(class.read_only_tools.iter().map(String::as_str).find(asks), None);
    }
}

#[test]
fn opencode_is_kept_silent_by_its_private_configuration() {
    let p = find("opencode").unwrap().load().unwrap().profile;
    let values: BTreeMap<&str, String> = [
        ("home", "/home/agent"),
        ("model", "some/model-1"),
        ("base_url", "http://127.0.0.1:8080/v1"),
        ("placeholder_key", "placeholder"),
    ]
    .map(|(k, v)| (k, v.to_owned()))
    .into();
    let read = |path: &str| -> serde_json::Value {
        let file = p.home_files.iter().find(|f| f.path == path).unwrap();
        serde_json::from_str(&template::fill(&file.content, &values).unwrap()).unwrap()
    };
    let config = read(".config/opencode/opencode.json");
    for key in ["autoupdate", "snapshot", "lsp", "formatter"] {
        assert_eq!(config[key], false, "{key}");
    }
    assert_eq!((&config["share"], &config["compaction"]["auto"]), (&"disabled".into(), &false.into()));
    let provider = &config["provider"]["stockade"];
    assert_eq!(provider["options"]["baseURL"], "http://127.0.0.1:8080/v1");
    let variants = provider["models"]["some/model-1"]["variants"].as_object().unwrap();
    assert!(p.models.efforts.iter().all(|effort| variants[effort]["reasoningEffort"] == **effort));
    assert_eq!(variants.len(), p.models.efforts.len());
    assert_eq!(config["instructions"][0], format!("/home/agent/{}", p.launch.instructions_file.unwrap()));
    // Whatever a call asks is allowed or refused, and by default refused.
    for agent in ["read-only", "isolated-write"] {
        let rules = config["agent"][agent]["permission"].as_object().unwrap();
        assert_eq!(rules["*"], "deny");
        assert!(rules.values().all(|rule| rule == "allow" || rule == "deny"), "{agent} asks");
    }
    // It looks here whether the package for plugins is installed.
    let lock = read(".config/opencode/package-lock.json");
    assert!(lock["packages"][""]["dependencies"]["@opencode-ai/plugin"].is_string());
    assert_eq!(p.output.dialect, Dialect::OpencodeRun);
    assert_eq!((p.sandbox.name, p.launch.prompt), (None, PromptDelivery::Stdin));
}
