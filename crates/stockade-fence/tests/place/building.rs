//! Built, proven, worked in, closed.

use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use stockade_core::survey::Rung;
use stockade_fence::{
    BindAccess, Expectation, Fence, FenceNetwork, Notice, OwnBinary, ProofRequest, WorkspaceProof,
};

use super::harness::Test;
use super::lab::{Lab, bind};

pub(crate) const TESTS: &[Test] = &[
    ("a_writable_workspace_is_proven_and_worked_in", a_writable_workspace_is_proven_and_worked_in),
    ("a_read_only_workspace_stays_as_it_is", a_read_only_workspace_stays_as_it_is),
    ("a_git_folder_stays_as_it_is", a_git_folder_stays_as_it_is),
    ("the_listeners_inside_are_heard_outside", the_listeners_inside_are_heard_outside),
    ("egress_has_a_listener_of_its_own", egress_has_a_listener_of_its_own),
    ("an_empty_network_has_nobody_to_talk_to", an_empty_network_has_nobody_to_talk_to),
    ("the_hosts_network_is_the_hosts", the_hosts_network_is_the_hosts),
    ("the_own_binary_runs_inside", the_own_binary_runs_inside),
    ("without_a_bound_home_there_is_a_private_one", without_a_bound_home_there_is_a_private_one),
    ("the_limit_of_processes_holds", the_limit_of_processes_holds),
    ("a_second_fence_is_another_place", a_second_fence_is_another_place),
];

fn a_writable_workspace_is_proven_and_worked_in() {
    for rung in Rung::ALL {
        let lab = Lab::new("write");
        let mut fence = Fence::build(&lab.spec_on(rung)).unwrap();
        let proof = fence.prove(&lab.proof()).unwrap();
        let second_lock = proof.canaries.iter().any(|c| c.name == "second-lock");
        assert_eq!(second_lock, rung == Rung::Nsl);
        assert!(proof.canaries.len() >= 17, "{proof:?}");
        for canary in &proof.canaries {
            assert_eq!(canary.inside == Some(0), canary.expected == Expectation::Works, "{canary:?}");
        }
        let script = "id -u; id -un; echo $HOME; cat file; echo new > new; mkdir d; echo more >> file; \
                      touch /home/agent/mine /tmp/t /var/tmp/t /run/t /dev/shm/t && echo private; exit 3";
        let out = lab.run(&mut fence, script);
        assert_eq!(out.stdout, "1000\nagent\n/home/agent\nfrom the host\nprivate\n", "{}", out.stderr);
        assert_eq!((out.exited.code, out.exited.signal, out.exited.left_behind), (Some(3), None, 0));
        assert_eq!(fs::read_to_string(lab.workspace.join("file")).unwrap(), "from the host\nmore\n");
        assert!(lab.home.join("mine").exists());
        // What was made inside belongs to the owner of the workspace outside.
        let (made, folder) =
            (fs::metadata(lab.workspace.join("new")).unwrap(), fs::metadata(&lab.workspace).unwrap());
        assert_eq!((made.uid(), made.gid()), (folder.uid(), folder.gid()));
        let end = fence.close(Duration::from_secs(2));
        assert!(end.gone, "{end:?}");
        assert_eq!(end.killed, Some(0));
        assert!(!lab.decoys.join("decoy-secret").exists());
    }
}

fn a_read_only_workspace_stays_as_it_is() {
    for rung in Rung::ALL {
        let lab = Lab::new("read");
        let mut spec = lab.spec_on(rung);
        spec.binds[0].access = BindAccess::ReadOnly;
        let mut fence = Fence::build(&spec).unwrap();
        let wrong = fence.prove(&lab.proof()).unwrap_err().to_string();
        assert_eq!(wrong, "canary `workspace-write` must work inside and failed: EROFS");
        let workspace = Some(WorkspaceProof { path: lab.workspace.clone(), access: BindAccess::ReadOnly });
        fence.prove(&ProofRequest { workspace, ..lab.proof() }).unwrap();
        let out = lab.run(
            &mut fence,
            "cat file; echo x > new; echo x >> file; rm file; chmod 777 file; touch -d 2001-01-01 file; mv file f2; \
             mkdir d; ln file l; ln -s file s; cat > report.md <<EOF\nx\nEOF\necho still here",
        );
        assert_eq!(out.stdout, "from the host\nstill here\n");
        assert_eq!(out.stderr.matches("Read-only file system").count(), 10, "{}", out.stderr);
        let names: Vec<_> = fs::read_dir(&lab.workspace).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names, ["file"]);
        assert_eq!(fs::read_to_string(lab.workspace.join("file")).unwrap(), "from the host\n");
    }
}

fn a_git_folder_stays_as_it_is() {
    let lab = Lab::new("git");
    let git = lab.workspace.join(".git");
    fs::create_dir_all(git.join("hooks")).unwrap();
    fs::write(git.join("config"), "[core]\n").unwrap();
    let mut spec = lab.spec();
    spec.binds.push(bind(&git, &git, BindAccess::ReadOnly));
    let mut fence = Fence::build(&spec).unwrap();
    let unprotected = ProofRequest { protected: vec![lab.workspace.clone()], ..lab.proof() };
    let wrong = fence.prove(&unprotected).unwrap_err().to_string();
    assert_eq!(wrong, "canary `protected-write` worked inside and must not");
    fence.prove(&ProofRequest { protected: vec![git.clone()], ..lab.proof() }).unwrap();
    let out = lab.run(
        &mut fence,
        "stat -c %u .git; echo x > .git/hooks/post-commit; echo x >> .git/config; mv .git g; rm -rf .git; \
         mkdir .git2; mv -T .git2 .git; cat .git/config; echo ok > other",
    );
    assert_eq!(out.stdout, "1000\n[core]\n", "{}", out.stderr);
    assert!(out.stderr.contains("busy"), "{}", out.stderr);
    assert_eq!(fs::read_dir(git.join("hooks")).unwrap().count(), 0);
    assert!(lab.workspace.join("other").exists());
}

fn the_listeners_inside_are_heard_outside() {
    let lab = Lab::new("gateway");
    let mut fence = Fence::build(&lab.spec()).unwrap();
    let listeners = fence.take_listeners();
    let (model, names) = (listeners.model.unwrap(), listeners.names.unwrap());
    assert!(fence.take_listeners().model.is_none());
    let answerer = std::thread::spawn(move || {
        let mut said = String::new();
        let (mut stream, _) = model.accept().unwrap();
        stream.read_to_string(&mut said).unwrap();
        let mut query = [0; 64];
        names.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let n = names.recv(&mut query).unwrap();
        (said, String::from_utf8_lossy(&query[..n]).into_owned())
    });
    let script = "exec 3<>/dev/tcp/127.0.0.1/8080; echo -n to the model >&3; exec 3>&-; \
                  echo -n a name > /dev/udp/127.0.0.1/53; cat /etc/resolv.conf; \
                  (exec 4<>/dev/tcp/127.0.0.1/22) 2>/dev/null || echo nothing else; \
                  (exec 4<>/dev/tcp/169.254.169.254/80) 2>/dev/null || echo no route; hostname";
    let out = lab.run_with(&mut fence, "/bin/bash", script);
    assert_eq!(
        out.stdout, "nameserver 127.0.0.1\noptions timeout:1 attempts:1\nnothing else\nno route\nstockade\n",
        "{}",
        out.stderr
    );
    assert_eq!(answerer.join().unwrap(), ("to the model".to_owned(), "a name".to_owned()));
}

fn egress_has_a_listener_of_its_own() {
    let lab = Lab::new("egress");
    let mut without = Fence::build(&lab.spec()).unwrap();
    assert!(without.take_listeners().egress.is_none());
    let mut spec = lab.spec();
    spec.network = FenceNetwork::GatewayWithEgress;
    let mut fence = Fence::build(&spec).unwrap();
    let listeners = fence.take_listeners();
    assert!(listeners.model.is_some() && listeners.names.is_some());
    let egress = listeners.egress.unwrap();
    let answerer = std::thread::spawn(move || {
        let mut said = String::new();
        egress.accept().unwrap().0.read_to_string(&mut said).unwrap();
        said
    });
    let script = "exec 3<>/dev/tcp/127.0.0.1/3128; echo -n to the proxy >&3";
    let out = lab.run_with(&mut fence, "/bin/bash", script);
    assert_eq!((answerer.join().unwrap().as_str(), out.stderr.as_str()), ("to the proxy", ""));
    drop(fence);
    fence = without;
    let script = "(exec 3<>/dev/tcp/127.0.0.1/3128) 2>/dev/null || echo nobody";
    assert_eq!(lab.run_with(&mut fence, "/bin/bash", script).stdout, "nobody\n");
}

fn an_empty_network_has_nobody_to_talk_to() {
    let lab = Lab::new("empty");
    let mut spec = lab.spec();
    spec.network = FenceNetwork::Empty;
    let mut fence = Fence::build(&spec).unwrap();
    let listeners = fence.take_listeners();
    assert!(listeners.model.is_none() && listeners.names.is_none());
    fence.prove(&lab.proof()).unwrap();
    let out =
        lab.run_with(&mut fence, "/bin/bash", "(exec 3<>/dev/tcp/127.0.0.1/8080) 2>&1 | grep -c refused");
    assert_eq!(out.stdout, "2\n", "bash says it twice");
}

fn the_hosts_network_is_the_hosts() {
    let lab = Lab::new("host");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut spec = lab.spec();
    spec.network = FenceNetwork::Host;
    let mut fence = Fence::build(&spec).unwrap();
    let proof = fence.prove(&lab.proof()).unwrap();
    let network =
        proof.canaries.iter().filter(|c| c.guarantee == stockade_core::guarantee::Guarantee::Network);
    assert_eq!(network.count(), 0, "nothing about the network is claimed");
    let port = listener.local_addr().unwrap().port();
    let out =
        lab.run_with(&mut fence, "/bin/bash", &format!("exec 3<>/dev/tcp/127.0.0.1/{port} && echo reached"));
    assert_eq!(out.stdout, "reached\n", "{}", out.stderr);
}

fn the_own_binary_runs_inside() {
    let lab = Lab::new("own");
    let mut spec = lab.spec();
    spec.own_binary = OwnBinary::Bound;
    let mut fence = Fence::build(&spec).unwrap();
    let out = lab.run(
        &mut fence,
        "/run/stockade/stockade hello; mv /run/stockade /run/x; ls /run/stockade; : > /run/f",
    );
    assert_eq!(out.stdout, "hello from the own binary\nstockade\n", "{}", out.stderr);
    assert!(out.stderr.contains("busy"), "{}", out.stderr);
}

fn without_a_bound_home_there_is_a_private_one() {
    let lab = Lab::new("home");
    let mut spec = lab.spec();
    spec.binds.remove(1);
    let mut fence = Fence::build(&spec).unwrap();
    fence.prove(&lab.proof()).unwrap();
    let out = lab.run(&mut fence, "echo x > /home/agent/x && stat -c '%U %a' /home/agent");
    assert_eq!(out.stdout, "agent 700\n", "{}", out.stderr);
    assert_eq!(fs::read_dir(&lab.home).unwrap().count(), 0);
}

fn the_limit_of_processes_holds() {
    let lab = Lab::new("limit");
    let mut spec = lab.spec();
    spec.max_processes = Some(400);
    let mut fence = Fence::build(&spec).unwrap();
    let host = fs::read_to_string("/proc/sys/kernel/pid_max").unwrap();
    assert_eq!(fence.facts().max_processes, Some(400), "kernels before 6.14 have no such limit");
    let out = lab.run_with(
        &mut fence,
        "/bin/bash",
        "for i in {1..600}; do sleep 60 & done 2>/dev/null; echo never",
    );
    assert!(!out.stdout.contains("never") || out.exited.left_behind < 400, "{out:?}");
    assert_eq!(fs::read_to_string("/proc/sys/kernel/pid_max").unwrap(), host);
}

fn a_second_fence_is_another_place() {
    let (first_lab, second_lab) = (Lab::new("first"), Lab::new("second"));
    let mut first = Fence::build(&first_lab.spec()).unwrap();
    let mut second = Fence::build(&second_lab.spec()).unwrap();
    first_lab.run(&mut first, "echo x > /tmp/in-first");
    let out = second_lab.run(&mut second, &format!("ls /tmp/in-first {}", first_lab.workspace.display()));
    assert_eq!(out.stderr.matches("No such file").count(), 2, "{}", out.stderr);
    assert!(first.close(Duration::from_secs(2)).gone);
    let out = second_lab.run(&mut second, "echo lives on");
    assert_eq!(out.stdout, "lives on\n");
    assert!(Path::new("/proc").join(second.facts().pid.to_string()).exists());
    assert_eq!(second.next_notice(), Ok(None::<Notice>));
}
