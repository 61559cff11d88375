use std::{
    fs,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{MetadataExt as _, PermissionsExt as _, symlink},
    },
    sync::Barrier,
};

use super::*;
use crate::testing::Mounted;

fn make(path: &Path) -> Result<Reservation, JournalError> {
    Reservation::make(path, b"interrupted", &[])
}

fn entries(folder: &Path) -> Vec<OsString> {
    let mut names: Vec<_> = fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    names
}

#[test]
fn a_reserved_file_is_private_whole_and_replaced_at_the_end() {
    let t = tempfile::tempdir().unwrap();
    let path = t.path().join("a/b/receipt.json");
    let mut reserved = make(&path).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"interrupted");
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o7777, 0o600);
    reserved.commit(b"final").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"final");
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o7777, 0o600);
    reserved.commit(b"again").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"again");
    assert_eq!(entries(path.parent().unwrap()), ["receipt.json"]);
}

#[test]
fn whatever_is_there_is_refused_and_left_alone() {
    let t = tempfile::tempdir().unwrap();
    fs::write(t.path().join("file"), "theirs").unwrap();
    fs::create_dir(t.path().join("folder")).unwrap();
    symlink("file", t.path().join("link")).unwrap();
    symlink("nowhere", t.path().join("dangling")).unwrap();
    for (name, reason) in [
        ("file", "something is there already"),
        ("folder", "something is there already"),
        ("link", "a symbolic link is there already"),
        ("dangling", "a symbolic link to nothing is there already"),
    ] {
        for initial in [b"".as_slice(), b"x"] {
            let error = Reservation::make(&t.path().join(name), initial, &[]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Exists, "{name}");
            assert!(error.to_string().contains(reason), "{error}");
        }
    }
    assert_eq!(fs::read(t.path().join("file")).unwrap(), b"theirs");
    assert_eq!(entries(t.path()), ["dangling", "file", "folder", "link"]);
}

#[test]
fn paths_that_name_no_file_are_unusable() {
    let t = tempfile::tempdir().unwrap();
    fs::write(t.path().join("file"), "").unwrap();
    let long = "n".repeat(300);
    for bad in ["x/", "x/.", "..", "file/x", "none/../x", long.as_str()] {
        let error = make(&t.path().join(bad)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PathUnusable, "{bad}: {error}");
    }
    assert_eq!(make(Path::new("relative")).unwrap_err().kind(), ErrorKind::PathUnusable);
    assert_eq!(make(Path::new("/")).unwrap_err().kind(), ErrorKind::PathUnusable);
    assert_eq!(entries(t.path()), ["file"]);
}

#[test]
fn hostile_names_are_names_like_others() {
    let t = tempfile::tempdir().unwrap();
    let longest = "n".repeat(255);
    for name in [b"a\nb\x1b[2J".as_slice(), b"\xff\xfe", b"-rf", longest.as_bytes()] {
        let path = t.path().join(OsStr::from_bytes(name));
        let mut reserved = make(&path).unwrap();
        reserved.commit(b"final").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"final");
        assert_eq!(reserved.release().unwrap(), Released::Removed);
    }
    assert!(entries(t.path()).is_empty());
}

#[test]
fn another_file_at_the_path_is_left_alone() {
    let t = tempfile::tempdir().unwrap();
    let path = t.path().join("receipt");
    let mut reserved = make(&path).unwrap();
    fs::rename(&path, t.path().join("moved")).unwrap();
    fs::write(&path, "theirs").unwrap();
    assert_eq!(reserved.commit(b"final").unwrap_err().kind(), ErrorKind::Superseded);
    assert_eq!(reserved.release().unwrap(), Released::NotOurs);
    assert_eq!(fs::read(&path).unwrap(), b"theirs");
    assert_eq!(entries(t.path()), ["moved", "receipt"]);

    let gone = t.path().join("gone");
    let mut reserved = make(&gone).unwrap();
    fs::remove_file(&gone).unwrap();
    assert_eq!(reserved.commit(b"final").unwrap_err().kind(), ErrorKind::Superseded);
    assert!(!gone.exists());
}

#[test]
fn one_of_many_gets_the_path() {
    let t = tempfile::tempdir().unwrap();
    for round in 0..50 {
        let path = t.path().join(format!("new-{round}/receipt"));
        let barrier = Barrier::new(4);
        let won: usize = std::thread::scope(|scope| {
            let tries: Vec<_> = (0..4)
                .map(|i| {
                    let (path, barrier) = (&path, &barrier);
                    scope.spawn(move || {
                        barrier.wait();
                        match Reservation::make(path, format!("racer {i}").as_bytes(), &[]) {
                            Ok(_) => 1,
                            Err(e) => {
                                assert_eq!(e.kind(), ErrorKind::Exists, "{e}");
                                0
                            }
                        }
                    })
                })
                .collect();
            tries.into_iter().map(|t| t.join().unwrap()).sum()
        });
        assert_eq!(won, 1);
        assert!(fs::read_to_string(&path).unwrap().starts_with("racer "));
        assert_eq!(entries(path.parent().unwrap()), ["receipt"]);
    }
}

#[test]
fn several_are_reserved_together_or_not_at_all() {
    let t = tempfile::tempdir().unwrap();
    fs::write(t.path().join("taken"), "theirs").unwrap();
    let output = t.path().join("new/folder/out");
    let receipt = t.path().join("taken");
    let requests = [
        ReservationRequest { path: &output, initial: b"" },
        ReservationRequest { path: &receipt, initial: b"x" },
    ];
    assert_eq!(Reservation::make_all(&requests, &[]).unwrap_err().kind(), ErrorKind::Exists);
    assert_eq!(entries(t.path()), ["taken"], "folders made on the way are gone, too");
    fs::remove_file(&receipt).unwrap();
    assert_eq!(Reservation::make_all(&requests, &[]).unwrap().len(), 2);
}

#[test]
fn the_same_path_in_other_words_is_the_same_path() {
    let t = tempfile::tempdir().unwrap();
    fs::create_dir(t.path().join("real")).unwrap();
    symlink("real", t.path().join("link")).unwrap();
    let plain = t.path().join("real/x");
    for other in ["real/x", "link/x", "real/../link/./x", "real//x"] {
        let other = t.path().join(other);
        let requests = [
            ReservationRequest { path: &plain, initial: b"" },
            ReservationRequest { path: &other, initial: b"x" },
        ];
        let error = Reservation::make_all(&requests, &[]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::SamePath, "{}", other.display());
    }
    assert!(entries(&t.path().join("real")).is_empty());
}

#[test]
fn paths_inside_a_writable_root_are_refused_whatever_they_are_called() {
    let t = tempfile::tempdir().unwrap();
    let root = t.path().join("work");
    fs::create_dir_all(root.join("sub")).unwrap();
    symlink("work/sub", t.path().join("link")).unwrap();
    let bound = Mounted::bind_of(&root);
    for inside in [root.join("x"), root.join("new/x"), t.path().join("link/x"), bound.path().join("sub/x")] {
        let error = Reservation::make(&inside, b"x", std::slice::from_ref(&root)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InsideWritableRoot, "{}", inside.display());
        assert_eq!(error.cause().code, "inside-writable-root");
    }
    let through_link = Reservation::make(&root.join("x"), b"x", &[t.path().join("link/..")]);
    assert_eq!(through_link.unwrap_err().kind(), ErrorKind::InsideWritableRoot);
    assert_eq!(entries(&root), ["sub"]);
    Reservation::make(&t.path().join("workshop"), b"x", &[root]).unwrap();
}

#[test]
fn an_output_without_an_answer_is_released() {
    let t = tempfile::tempdir().unwrap();
    let path = t.path().join("kept/out");
    let reserved = make(&path).unwrap();
    assert_eq!(reserved.release().unwrap(), Released::Removed);
    assert_eq!(entries(t.path()), ["kept"]);
    let reserved = make(&t.path().join("fresh/out")).unwrap();
    assert_eq!(reserved.roll_back().unwrap(), Released::Removed);
    assert_eq!(entries(t.path()), ["kept"], "a roll-back takes the folders away that were made");
}

#[test]
fn a_full_disk_is_storage_and_leaves_the_reservation_readable() {
    let disk = Mounted::small_tmpfs(64);
    let path = disk.path().join("receipt");
    let mut reserved = make(&path).unwrap();
    let no_space = (ErrorKind::Storage, Some(Errno::NOSPC.raw_os_error()));
    let error = reserved.commit(&vec![b'x'; 1 << 20]).unwrap_err();
    assert_eq!((error.kind(), error.errno()), no_space);
    assert_eq!(fs::read(&path).unwrap(), b"interrupted");
    assert_eq!(entries(disk.path()), ["receipt"]);
    reserved.commit(b"a shorter one").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"a shorter one");

    let error = Reservation::make(&disk.path().join("new/second"), &vec![b'x'; 1 << 20], &[]).unwrap_err();
    assert_eq!((error.kind(), error.errno()), no_space);
    assert_eq!(entries(disk.path()), ["receipt"], "nothing half-made stays");
}

#[test]
fn a_read_only_place_and_a_forbidden_one_are_storage() {
    let disk = Mounted::read_only_bind();
    for path in [disk.path().join("receipt"), disk.path().join("new/receipt")] {
        let error = make(&path).unwrap_err();
        assert_eq!((error.kind(), error.errno()), (ErrorKind::Storage, Some(Errno::ROFS.raw_os_error())));
        assert_eq!(error.cause().errno, Some(Errno::ROFS.raw_os_error()));
    }
    let t = tempfile::tempdir().unwrap();
    let closed = t.path().join("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o500)).unwrap();
    let error = crate::testing::without_root_powers(|| make(&closed.join("receipt")).unwrap_err());
    assert_eq!((error.kind(), error.errno()), (ErrorKind::Storage, Some(Errno::ACCESS.raw_os_error())));
}

#[test]
fn a_torn_file_of_an_earlier_attempt_is_replaced() {
    let t = tempfile::tempdir().unwrap();
    let path = t.path().join("receipt");
    let mut reserved = make(&path).unwrap();
    let torn = t.path().join(format!(".stockade-{:x}.tmp", path.metadata().unwrap().ino()));
    fs::write(&torn, "{\"half").unwrap();
    assert_eq!(crate::receipts::torn_temporary(&path), Some(torn));
    reserved.commit(b"final").unwrap();
    assert_eq!(entries(t.path()), ["receipt"]);
    assert_eq!(fs::read(&path).unwrap(), b"final");
}

#[test]
fn a_reader_never_sees_a_receipt_in_the_making() {
    let t = tempfile::tempdir().unwrap();
    let whole = vec![b'i'; 200_000];
    let after = vec![b'f'; 300_000];
    for round in 0..20 {
        let path = t.path().join(format!("receipt-{round}"));
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                loop {
                    match fs::read(&path) {
                        Ok(bytes) if bytes == after => break,
                        Ok(bytes) => assert!(bytes == whole, "torn: {} bytes", bytes.len()),
                        Err(e) => assert_eq!(e.kind(), std::io::ErrorKind::NotFound),
                    }
                }
            });
            let mut reserved = Reservation::make(&path, &whole, &[]).unwrap();
            reserved.commit(&after).unwrap();
            reader.join().unwrap();
        });
    }
}

#[test]
fn where_a_file_cannot_be_linked_it_is_created_and_filled_or_not_there() {
    let disk = Mounted::small_tmpfs(64);
    let folder = open_parent(disk.path()).unwrap();
    let name = OsStr::new("receipt");
    assert_eq!(create_and_fill(&folder, name, &vec![b'x'; 1 << 20]), Err(("write", Errno::NOSPC)));
    assert!(entries(disk.path()).is_empty());
    let id = create_and_fill(&folder, name, b"whole").unwrap();
    assert_eq!(files::identity_at(&folder, name), Ok(Some(id)));
    assert_eq!(create_and_fill(&folder, name, b"again"), Err(("create", Errno::EXIST)));
    assert_eq!(fs::read(disk.path().join(name)).unwrap(), b"whole");
}
