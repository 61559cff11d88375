//! Everything around a run that has to be afterwards as it was before: workspace, home and what lies beside them, and folders
//! for temporary files, which are private to the call, so that nobody else's are in them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use stockade_core::mode::AccessMode;

use crate::{World, outside, run::Call, world};

/// Folders of the world, and what each is mounted on for the call.
const TEMPORARY: [(&str, &str); 3] = [("tmp", "/tmp"), ("var-tmp", "/var/tmp"), ("shm", "/dev/shm")];
/// Mounts what has to be there still, pairs of source and target up to `--`, then the folders, and starts what follows.
const MOUNT: &str = "set -e; world=$1; shift; while [ \"$1\" != -- ]; do mount --rbind \"$1\" \"$2\"; shift 2; done; shift; \
                     mount --rbind \"$world/var-tmp\" /var/tmp; mount --rbind \"$world/shm\" /dev/shm; \
                     mount --rbind \"$world/tmp\" /tmp; cd \"$world/out\"; exec \"$@\"";
/// Folders of users' programs, by variable. All below the home but the last.
const OF_USERS: [(&str, &str); 4] = [
    ("XDG_CACHE_HOME", "home/.cache"),
    ("XDG_DATA_HOME", "home/.local/share"),
    ("XDG_CONFIG_HOME", "home/.config"),
    ("XDG_RUNTIME_DIR", "runtime"),
];
/// No process may be left after this time.
const GONE: Duration = Duration::from_secs(3);
/// What a run directory holds, as `docs/run-directory.md` says.
const OF_A_RUN: [&str; 8] = [
    "answer",
    "events.ndjson",
    "launcher.json",
    "plan.json",
    "receipt.json",
    "session-events.jsonl",
    "stderr",
    "stdout",
];

/// Litters wherever a program inside can, and leaves a process.
pub const LITTER: &str = "for folder in /tmp /var/tmp /dev/shm /run ~ ~/.cache ~/.config .; do (echo x >$folder/litter.txt) 2>/dev/null; done; \
                          setsid -f sleep 600 >/dev/null 2>/dev/null </dev/null; echo littered";

/// What was around before.
#[derive(Debug)]
pub struct Surroundings<'w> {
    world: &'w World,
    /// Folders below those for temporary files that have to be there still, and where they are mounted.
    kept: Vec<[PathBuf; 2]>,
    before: BTreeMap<PathBuf, String>,
}

impl<'w> Surroundings<'w> {
    /// Makes the folders and looks at everything.
    pub fn of(world: &'w World) -> Self {
        for (folder, _) in TEMPORARY {
            fs::set_permissions(world.folder(folder), fs::Permissions::from_mode(0o1777)).unwrap();
        }
        for (_, folder) in OF_USERS {
            world.folder(folder);
        }
        world.give("home");
        fs::set_permissions(world.path("runtime"), fs::Permissions::from_mode(0o700)).unwrap();
        let programs = [world::binary(), world::helper_binary("host-class")];
        let folders = programs.iter().filter_map(|program| program.parent()).chain([world.root()]);
        let kept: BTreeSet<_> =
            folders.filter_map(|folder| Some([folder.to_owned(), inside(world, folder)?])).collect();
        for [_, target] in &kept {
            fs::create_dir_all(target).unwrap();
        }
        Self { world, kept: kept.into_iter().collect(), before: look(world) }
    }

    /// The program that runs the rest of its arguments with those folders, in the folder `out`.
    pub fn program(&self) -> Vec<String> {
        let mount = ["unshare", "--mount", "--", "sh", "-c", MOUNT, "mount"].map(str::to_owned);
        let folders = [self.world.root()].into_iter().chain(self.kept.iter().flatten().map(PathBuf::as_path));
        let folders = folders.map(|folder| folder.display().to_string());
        mount.into_iter().chain(folders).chain(["--".to_owned()]).collect()
    }

    /// Makes a call among them.
    #[must_use]
    pub fn around(&self, call: Call<'w>) -> Call<'w> {
        self.around_in(call, &[])
    }

    /// The same, started by a program as in [`Call::through`].
    #[must_use]
    pub fn around_in(&self, call: Call<'w>, program: &[String]) -> Call<'w> {
        let call = call.through(&[program, &self.program()].concat());
        OF_USERS
            .iter()
            .fold(call, |call, (name, folder)| call.env(name, &self.world.path(folder).display().to_string()))
    }

    /// Asserts that of [`LITTER`] in a mode nothing is left but what was written into the workspace on purpose.
    #[track_caller]
    pub fn assert_littered_alone(&self, mode: AccessMode, what: &str) {
        let stays: &[&str] = if mode == AccessMode::IsolatedWrite { &["litter.txt"] } else { &[] };
        self.assert_same(stays, what);
    }

    /// Asserts that no process is left, and that everything is as it was, but for what Stockade says it keeps, and these files
    /// of the workspace.
    #[track_caller]
    pub fn assert_same(&self, changed: &[&str], what: &str) {
        outside::wait_for_no_process_fenced_for(self.world, GONE);
        let (mut before, mut now) = (self.before.clone(), look(self.world));
        for file in changed {
            let file = Path::new("ws").join(file);
            before.remove(&file);
            assert!(now.remove(&file).is_some(), "{what}: {} is not there", file.display());
        }
        outside::assert_same(&before, &now, what);
        assert_state_is_kept_clean(self.world, what);
    }
}

/// Where a folder that lies below one for temporary files is mounted, so that it is found in the place of that; `None`: it lies
/// elsewhere.
fn inside(world: &World, folder: &Path) -> Option<PathBuf> {
    TEMPORARY
        .iter()
        .find_map(|(of_world, target)| Some(world.path(of_world).join(folder.strip_prefix(target).ok()?)))
}

/// A picture of the world, but for what a call is asked to write, the state directory, and files of the scripted model.
fn look(world: &World) -> BTreeMap<PathBuf, String> {
    let mut all = BTreeMap::new();
    for folder in ["ws", "home", "outside", "runtime"].into_iter().chain(TEMPORARY.map(|(folder, _)| folder))
    {
        let seen = outside::picture(&world.path(folder));
        all.extend(seen.into_iter().map(|(path, what)| (Path::new(folder).join(path), what)));
    }
    // What `host-class` makes for a host that lacks something.
    all.retain(|path, _| !path.display().to_string().starts_with("tmp/host-class-"));
    all
}

/// The state directory holds run directories, with their own files, and nothing else.
#[track_caller]
fn assert_state_is_kept_clean(world: &World, what: &str) {
    let mut odd = Vec::new();
    for entry in fs::read_dir(world.state()).unwrap().map(Result::unwrap) {
        let holds = || fs::read_dir(entry.path()).unwrap().map(|entry| entry.unwrap().path());
        match entry.file_name().to_str().unwrap() {
            "providers" => {}
            "runs" => {
                let files = holds().flat_map(|run| fs::read_dir(run).unwrap().map(|file| file.unwrap()));
                let odd_files = files.filter(|file| !OF_A_RUN.contains(&file.file_name().to_str().unwrap()));
                odd.extend(odd_files.map(|file| file.path()));
            }
            "homes" | "locks" | "worktrees" => odd.extend(holds()),
            _ => odd.push(entry.path()),
        }
    }
    assert_eq!(odd, Vec::<PathBuf>::new(), "{what}");
}
