//! Plans and refusals for every mode, host class and choice about the provider's own sandbox.

mod hosts;
mod limits;
mod orders;
mod render;

use std::{fmt::Write as _, path::PathBuf};

use super::*;
use crate::{
    git::WorkTree,
    order::{EndpointOrder, Listener, PreflightChoice, Workspace, WorkspaceKind},
    status::Status,
};

fn profile() -> LoadedProfile {
    let profile = toml::from_str(include_str!("tests/profile.toml")).unwrap();
    LoadedProfile { profile, digest: "aa".repeat(32) }
}

fn pin() -> Pin {
    Pin {
        provider: "sample".to_owned(),
        version: Some("1.2.3".to_owned()),
        path: PathBuf::from("/state/providers/sample/1.2.3/sample"),
        sha256: "bb".repeat(32),
        kind: PinKind::Stockade,
    }
}

/// The least a caller says: a prompt, a linked worktree and a loopback endpoint.
fn order() -> Order {
    Order {
        provider: "sample".to_owned(),
        model: None,
        effort: None,
        mode: AccessMode::ReadOnly,
        workspace: Workspace {
            path: PathBuf::from("/work/tree"),
            kind: WorkspaceKind::LinkedWorktree,
            owner_uid: 1000,
            owner_gid: 1000,
            in_place: false,
            git: None,
            idmap_refused: None,
            objections: Vec::new(),
        },
        prompt: TextFacts { bytes: 12, sha256: "cc".repeat(32) },
        instructions: None,
        reads: Vec::new(),
        writes: Vec::new(),
        pass_env: Vec::new(),
        endpoint: EndpointOrder {
            url: Some("http://127.0.0.1:4000/v1".to_owned()),
            api: None,
            key_env: None,
            key_present: false,
            ca: None,
        },
        network: NetworkPolicy::Model,
        allow: Vec::new(),
        provider_sandbox: ProviderSandbox::Replace,
        provider_sandbox_source: "flag".to_owned(),
        preflight: PreflightChoice::LeftOut,
        rung: None,
        accept_missing: Vec::new(),
        limits: Limits::default(),
        require_limits: crate::limits::LimitDemand::Reported,
        price: None,
        served_model: crate::order::ServedModelDemand::Reported,
        expect: crate::order::Expectation::Answer,
        session: "0198c0de-0000-7000-8000-000000000001".to_owned(),
        listener: Listener::default(),
    }
}

/// A plan for tests of what comes after planning.
pub(crate) fn sample_plan() -> LaunchPlan {
    planned(&Order { model: Some("m-1".to_owned()), ..order() }, &hosts::plain()).unwrap()
}

fn planned(order: &Order, survey: &Survey) -> Result<LaunchPlan, Refusal> {
    plan(order, &pin(), survey, &profile())
}

/// Every mode and choice on one host, as one text.
fn matrix(survey: &Survey, workspace: &Workspace) -> String {
    let mut out = String::new();
    for mode in AccessMode::ALL {
        for provider_sandbox in [ProviderSandbox::Keep, ProviderSandbox::Replace] {
            let order = Order { mode, provider_sandbox, workspace: workspace.clone(), ..order() };
            writeln!(out, "--- {} {}", mode.id(), provider_sandbox.id()).unwrap();
            out += &render::outcome(&planned(&order, survey));
        }
    }
    out
}

macro_rules! host_matrix {
    ($($name:ident: $survey:expr, $workspace:expr;)*) => {$(
        #[test]
        fn $name() {
            insta::assert_snapshot!(stringify!($name), matrix(&$survey, &$workspace));
        }
    )*};
}

host_matrix! {
    host_plain: hosts::plain(), order().workspace;
    host_no_landlock: hosts::no_landlock(), order().workspace;
    host_landlock_eopnotsupp: hosts::landlock_eopnotsupp(), order().workspace;
    host_no_bubblewrap: hosts::no_bubblewrap(), order().workspace;
    host_setuid_bubblewrap: hosts::setuid_bubblewrap(), order().workspace;
    host_no_landlock_no_bubblewrap: hosts::both_missing(), order().workspace;
    host_no_userns: hosts::no_userns(), order().workspace;
    host_userns_limit: hosts::userns_limit(), order().workspace;
    host_own_bubblewrap: hosts::own_bubblewrap(), order().workspace;
    host_no_nesting: hosts::no_nesting(), order().workspace;
    host_apparmor: hosts::apparmor(), order().workspace;
    host_apparmor_with_an_old_bubblewrap: hosts::apparmor_with_bubblewrap(Some("0.9.0")), order().workspace;
    host_apparmor_with_a_bubblewrap_that_does_not_say: hosts::apparmor_with_bubblewrap(None), order().workspace;
    host_apparmor_with_an_old_bubblewrap_and_a_plain_folder: hosts::apparmor_with_bubblewrap(Some("0.9.0")), Workspace {
        kind: WorkspaceKind::Plain,
        ..order().workspace
    };
    host_apparmor_with_a_new_bubblewrap: hosts::apparmor_with_bubblewrap(Some("0.12.1")), order().workspace;
    host_masked_proc: hosts::masked_proc(), order().workspace;
    host_docker: hosts::docker(), order().workspace;
    host_in_landlock: hosts::in_landlock(), order().workspace;
    host_claude_code_web: hosts::claude_code_web(), Workspace { owner_uid: 0, owner_gid: 0, ..order().workspace };
    host_root_with_a_users_workspace: hosts::root(), order().workspace;
    host_root_on_an_overlay: hosts::root(), Workspace {
        idmap_refused: Some(hosts::refused("mount_setattr(IDMAP)", 22, "EINVAL")),
        ..order().workspace
    };
    host_root_of_a_container: hosts::root_of_a_container(), order().workspace;
    host_root_without_mounting: hosts::root_without_mounting(), order().workspace;
}

#[test]
fn whole_plan_in_read_only() {
    insta::assert_json_snapshot!(planned(&order(), &hosts::plain()).unwrap());
}

#[test]
fn whole_plan_in_isolated_write_with_everything_said() {
    let order = Order {
        model: Some("m-alias".to_owned()),
        effort: Some("high".to_owned()),
        mode: AccessMode::IsolatedWrite,
        instructions: Some("-v be brief {model}".to_owned()),
        reads: vec![PathBuf::from("/data/in")],
        writes: vec![PathBuf::from("/data/out")],
        pass_env: vec!["LANGUAGE".to_owned()],
        endpoint: EndpointOrder {
            url: None,
            api: Some(Api::Responses),
            key_env: Some("SAMPLE_KEY".to_owned()),
            key_present: true,
            ca: Some(PathBuf::from("/etc/ca.pem")),
        },
        ..order()
    };
    insta::assert_json_snapshot!(planned(&order, &hosts::root()).unwrap());
}

#[test]
fn a_plan_reads_back_as_it_was_written() {
    for survey in [hosts::plain(), hosts::root(), hosts::claude_code_web()] {
        let plan = planned(&order(), &survey).unwrap();
        let text = serde_json::to_string(&plan).unwrap();
        assert_eq!(serde_json::from_str::<LaunchPlan>(&text).unwrap(), plan);
    }
}

#[test]
fn a_prompt_never_travels_in_argv_nor_a_key_in_the_environment() {
    let order = Order {
        endpoint: EndpointOrder {
            key_env: Some("SAMPLE_KEY".to_owned()),
            key_present: true,
            ..order().endpoint
        },
        pass_env: vec!["FOO".to_owned()],
        ..order()
    };
    let plan = planned(&order, &hosts::plain()).unwrap();
    assert_eq!(plan.prompt.file.as_deref(), Some("prompt.md"));
    assert!(plan.argv.contains(&"/home/agent/prompt.md".to_owned()));
    assert!(!plan.env.contains_key("SAMPLE_KEY") && !plan.env.contains_key("FOO"));
    assert_eq!(plan.passed_env, ["FOO"]);
}

#[test]
fn a_provider_without_a_sandbox_of_its_own_has_nothing_to_keep() {
    let mut loaded = profile();
    loaded.profile.sandbox.name = None;
    loaded.profile.sandbox.needs.clear();
    let keep = Order { provider_sandbox: ProviderSandbox::Keep, ..order() };
    let plan = plan(&keep, &pin(), &hosts::no_bubblewrap(), &loaded).unwrap();
    assert_eq!(plan.rung, Rung::Nsl);
}

#[test]
fn a_sandbox_that_names_no_need_still_needs_a_rung_that_nests() {
    let mut loaded = profile();
    loaded.profile.sandbox.needs.clear();
    let keep = Order { provider_sandbox: ProviderSandbox::Keep, ..order() };
    assert_eq!(plan(&keep, &pin(), &hosts::no_bubblewrap(), &loaded).unwrap().rung, Rung::NsNest);
    let refusal = plan(&keep, &pin(), &hosts::no_nesting(), &loaded).unwrap_err();
    assert_eq!(refusal.status, Some(Status::SandboxUnavailable));
    assert!(refusal.cause.message.ends_with("it lacks nesting"), "{}", refusal.cause.message);
}

#[test]
fn the_first_rung_that_stands_is_taken_and_none_is_assumed() {
    let mut survey = hosts::plain();
    assert_eq!(planned(&order(), &survey).unwrap().rung, Rung::Nsl);
    // `run` stops at the first rung that stands: a rung that was never tried is neither taken nor reported.
    survey.rungs.truncate(1);
    let plan = planned(&order(), &survey).unwrap();
    assert_eq!((plan.rung, plan.rejected_rungs.len()), (Rung::Nsl, 0));
    survey.rungs.clear();
    let refusal = planned(&order(), &survey).unwrap_err();
    assert_eq!((refusal.status, refusal.cause.code.as_str()), (Some(Status::SandboxUnavailable), "no-rung"));
}

/// Every rung by name, in every mode, with the provider's own sandbox kept and replaced.
fn forced(survey: &Survey, workspace: &Workspace) -> String {
    let mut out = String::new();
    for rung in Rung::ALL {
        for mode in AccessMode::ALL {
            for provider_sandbox in [ProviderSandbox::Keep, ProviderSandbox::Replace] {
                let workspace = workspace.clone();
                let order = Order { rung: Some(rung), mode, provider_sandbox, workspace, ..order() };
                writeln!(out, "--- {} {} {}", rung.id(), mode.id(), provider_sandbox.id()).unwrap();
                out += &render::in_short(&planned(&order, survey));
            }
        }
    }
    out
}

#[test]
fn a_rung_by_name_is_taken_or_refused_and_never_another() {
    let plain = Workspace { kind: WorkspaceKind::Plain, ..order().workspace };
    let roots = Workspace { owner_uid: 0, owner_gid: 0, ..plain.clone() };
    let overlay = Workspace {
        idmap_refused: Some(hosts::refused("mount_setattr(IDMAP)", 22, "EINVAL")),
        ..roots.clone()
    };
    let mut seen = String::new();
    for (name, survey, workspace) in [
        ("plain, a plain folder", hosts::plain(), &plain),
        ("plain, a linked worktree", hosts::plain(), &order().workspace),
        ("no Landlock", hosts::no_landlock(), &plain),
        ("covered /proc", hosts::masked_proc(), &plain),
        ("no user namespaces", hosts::no_userns(), &plain),
        ("root", hosts::root(), &roots),
        ("root, a user's folder", hosts::root(), &plain),
        ("root on an overlay", hosts::root(), &overlay),
    ] {
        writeln!(seen, "=== {name}\n{}", forced(&survey, workspace)).unwrap();
    }
    insta::assert_snapshot!(seen);
}

#[test]
fn every_rung_tells_its_guarantees() {
    let mut seen = String::new();
    for rung in Rung::ALL {
        let order = Order {
            rung: Some(rung),
            accept_missing: vec![Guarantee::ProcessVisibility],
            workspace: Workspace { kind: WorkspaceKind::Plain, ..order().workspace },
            ..order()
        };
        write!(seen, "--- {}\n{}", rung.id(), render::outcome(&planned(&order, &hosts::plain()))).unwrap();
    }
    insta::assert_snapshot!(seen);
}

#[test]
fn where_proc_is_covered_only_the_callers_word_lets_a_run_start() {
    let refusal = planned(&order(), &hosts::masked_proc()).unwrap_err();
    assert_eq!(refusal.cause.code, "guarantee-missing");
    assert_eq!(refusal.cause.step, "guarantee process-visibility");
    let remedy = refusal.cause.remedy.unwrap();
    assert!(
        remedy.contains("systempaths=unconfined") && remedy.contains("--accept-missing process-visibility"),
        "{remedy}"
    );
    for other in Guarantee::ALL.into_iter().filter(|g| *g != Guarantee::ProcessVisibility) {
        let accepted = Order { accept_missing: vec![other], ..order() };
        assert!(planned(&accepted, &hosts::masked_proc()).is_err(), "{other:?} is another word");
    }
    let accepted = Order { accept_missing: vec![Guarantee::ProcessVisibility], ..order() };
    let plan = planned(&accepted, &hosts::masked_proc()).unwrap();
    assert_eq!(plan.rung, Rung::NsHostproc);
    assert_eq!(plan.rejected_rungs.len(), 2);
    let told = plan
        .notes
        .iter()
        .filter(|n| n.starts_with("`process-visibility` is missing, as the caller accepted"));
    assert_eq!(told.count(), 1, "{:?}", plan.notes);
}

#[test]
fn git_is_mounted_read_only_over_a_writable_workspace_only() {
    let kinds = [WorkspaceKind::Plain, WorkspaceKind::LinkedWorktree, WorkspaceKind::MainWorktree];
    let mut seen = String::new();
    for mode in AccessMode::ALL {
        for kind in kinds {
            let workspace = Workspace { kind, in_place: true, ..order().workspace };
            let plan = planned(&Order { mode, workspace, ..order() }, &hosts::plain()).unwrap();
            let mounts = plan.mounts.iter().map(render::mount).collect::<Vec<_>>().join(", ");
            writeln!(seen, "{} {kind:?}: {mounts}", mode.id()).unwrap();
        }
    }
    insta::assert_snapshot!(seen);
}

#[test]
fn a_private_git_folder_stands_in_the_place_of_the_real_one() {
    let git = |tree: WorkTree, shown_at: &str| GitWorkspace {
        tree,
        common: "/work/repo/.git".into(),
        shown_at: shown_at.into(),
        base: None,
        author: None,
        include_dirty: false,
    };
    let mounts = |mode: AccessMode, kind: WorkspaceKind, git: GitWorkspace| {
        let workspace = Workspace { kind, git: Some(git), ..order().workspace };
        let plan = planned(&Order { mode, workspace, ..order() }, &hosts::plain()).unwrap();
        assert_eq!(plan.home_files[".gitconfig"], "[safe]\n\tdirectory = \"/work/tree\"\n");
        plan.mounts.iter().skip(2).map(render::mount).collect::<Vec<_>>()
    };
    let (linked, main) = (WorkspaceKind::LinkedWorktree, WorkspaceKind::MainWorktree);
    let objects = "ro git objects at /repository/objects";
    assert_eq!(
        mounts(AccessMode::IsolatedWrite, main, git(WorkTree::Made, "/work/tree/.git")),
        ["rw made worktree at /work/tree", "rw private git folder at /work/tree/.git", objects]
    );
    assert_eq!(
        mounts(AccessMode::IsolatedWrite, linked, git(WorkTree::Named, "/work/repo/.git")),
        [
            "rw workspace at /work/tree",
            "ro git entry at /work/tree/.git",
            "rw private git folder at /work/repo/.git",
            objects
        ]
    );
    assert_eq!(
        mounts(AccessMode::ReadOnly, main, git(WorkTree::Shown, "/work/tree/.git")),
        ["ro workspace at /work/tree", "ro private git folder at /work/tree/.git", objects]
    );
    let made =
        Workspace { kind: main, git: Some(git(WorkTree::Made, "/work/tree/.git")), ..order().workspace };
    let made = Order { mode: AccessMode::IsolatedWrite, workspace: made, ..order() };
    assert_eq!(planned(&made, &hosts::root()).unwrap().identity, PlannedIdentity::PrivateUid);
}

#[test]
fn the_hosts_network_is_its_own_consent_for_nothing_but_the_network() {
    let host = Order { network: NetworkPolicy::Host, ..order() };
    let missing = |plan: &LaunchPlan| {
        plan.guarantees.iter().filter(|g| !g.held).map(|g| (g.id, g.required)).collect::<Vec<_>>()
    };
    let plan = planned(&host, &hosts::plain()).unwrap();
    assert_eq!(missing(&plan), [(Guarantee::Network, true)]);

    // Without Landlock, abstract sockets of the host's services would be open too.
    let refusal = planned(&host, &hosts::no_landlock()).unwrap_err();
    insta::assert_snapshot!(render::refusal(&refusal));

    let accepted = Order { accept_missing: vec![Guarantee::WriteConfinement], ..host };
    let plan = planned(&accepted, &hosts::no_landlock()).unwrap();
    assert_eq!(missing(&plan), [(Guarantee::WriteConfinement, true), (Guarantee::Network, true)]);
}

#[test]
fn accepting_a_missing_guarantee_takes_nothing_away_that_can_be_held() {
    let accepted = Order { accept_missing: Guarantee::ALL.to_vec(), ..order() };
    assert_eq!(planned(&accepted, &hosts::plain()), planned(&order(), &hosts::plain()));
}

#[test]
fn platforms_that_cannot_carry_a_fence_are_refused_by_name() {
    for (kernel, machine, stands) in [
        ("5.12.0", "x86_64", true),
        ("6.18.44-fc-v595", "x86_64", true),
        ("10.0", "x86_64", true),
        ("5.11.22-generic", "x86_64", false),
        ("4.4.0-19041-Microsoft", "x86_64", false),
        ("6.1.0", "aarch64", false),
        ("", "x86_64", false),
        ("linux", "x86_64", false),
        ("99999999999999999999.1", "x86_64", false),
    ] {
        let survey = Survey { kernel: kernel.to_owned(), machine: machine.to_owned(), ..hosts::plain() };
        let outcome = planned(&order(), &survey);
        assert_eq!(outcome.is_ok(), stands, "{kernel} {machine}");
        if let Err(refusal) = outcome {
            assert_eq!(refusal.status, Some(Status::PlatformUnsupported));
            assert_eq!(refusal.exit_code(), 71);
            assert!(refusal.cause.remedy.is_some());
        }
    }
}

#[test]
fn a_profile_with_a_typo_is_refused_before_it_reaches_an_argv() {
    let mut loaded = profile();
    loaded.profile.launch.argv.push("{modle}".to_owned());
    let refusal = plan(&order(), &pin(), &hosts::plain(), &loaded).unwrap_err();
    assert_eq!((refusal.status, refusal.exit_code()), (None, 64));
    assert!(refusal.cause.message.contains("{modle}"), "{}", refusal.cause.message);
}

#[test]
fn a_preflight_is_planned_where_it_is_ordered_and_the_profile_has_one() {
    let mut loaded = profile();
    let asked = Order { preflight: PreflightChoice::Asked, model: Some("m-1".to_owned()), ..order() };
    assert_eq!(plan(&asked, &pin(), &hosts::plain(), &loaded).unwrap().preflight, None);
    loaded.profile.launch.preflight = Some(crate::profile::PreflightCommand {
        argv: vec!["models".to_owned()],
        unauthenticated: vec!["no login".to_owned()],
        words: vec!["{model}".to_owned()],
        retry_after_ms: Some(5),
    });
    let planned = plan(&asked, &pin(), &hosts::plain(), &loaded).unwrap().preflight.unwrap();
    assert_eq!(planned.argv, ["/provider/sample", "models"]);
    assert_eq!((planned.words, planned.retry_after_ms), (vec!["m-1".to_owned()], Some(5)));
    assert_eq!(plan(&order(), &pin(), &hosts::plain(), &loaded).unwrap().preflight, None);
}

#[test]
fn a_sandbox_that_leaves_files_is_kept_only_where_the_workspace_may_change() {
    let mut loaded = profile();
    loaded.profile.sandbox.residue = vec![".sandbox/left".to_owned()];
    let keep = |mode| {
        let order = Order { mode, provider_sandbox: ProviderSandbox::Keep, ..order() };
        plan(&order, &pin(), &hosts::plain(), &loaded)
    };
    let refusal = keep(AccessMode::ReadOnly).unwrap_err();
    assert_eq!(refusal.status, Some(Status::SandboxUnavailable));
    assert_eq!(refusal.cause.code, "provider-sandbox-unavailable");
    assert!(refusal.cause.evidence.iter().any(|e| e.contains("`.sandbox/left`")), "{:?}", refusal.cause);
    let planned = keep(AccessMode::IsolatedWrite).unwrap();
    assert_eq!(planned.provider_sandbox.residue, [".sandbox/left"]);
    let replaced = plan(&order(), &pin(), &hosts::plain(), &loaded).unwrap();
    assert_eq!(replaced.provider_sandbox.residue, [""; 0]);
}
