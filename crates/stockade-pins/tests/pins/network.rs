//! Registries that are cut, slow, wrong or behind a proxy.

use std::time::Instant;

use stockade_pins::{Network, Outcome, PinErrorKind, Step};

use crate::package::Package;
use crate::server::{ConnectProxy, Reply, Server};
use crate::world::{World, request, run};

#[test]
fn a_cut_download_is_told_as_such() {
    let package = Package::new();
    let half = package.tarball[..package.tarball.len() / 2].to_vec();
    for reply in [Reply::Cut(package.tarball.clone()), Reply::Unannounced(half)] {
        let server = Server::plain(reply);
        let world = World::new(package.pins());
        let error = run(&world.store, &request(&server.http())).unwrap_err();
        assert_eq!((error.kind(), error.step()), (PinErrorKind::Unreachable, Step::Download), "{error}");
        assert!(error.to_string().contains("cut after"), "{error}");
        world.assert_nothing_left();
    }
}

#[test]
fn a_tarball_larger_than_its_pin_is_refused_announced_or_not() {
    let package = Package::new();
    let mut longer = package.tarball.clone();
    longer.push(0);
    for reply in [Reply::Whole(longer.clone()), Reply::Unannounced(longer)] {
        let server = Server::plain(reply);
        let world = World::new(package.pins());
        let error = run(&world.store, &request(&server.http())).unwrap_err();
        assert_eq!(
            (error.kind(), error.step()),
            (PinErrorKind::VerificationFailed, Step::Download),
            "{error}"
        );
        world.assert_nothing_left();
    }
}

#[test]
fn refusals_of_the_registry_keep_their_status() {
    let package = Package::new();
    for status in [403, 404, 500] {
        let server = Server::plain(Reply::Status(status));
        let world = World::new(package.pins());
        let error = run(&world.store, &request(&server.http())).unwrap_err();
        assert_eq!(error.kind(), PinErrorKind::Unreachable);
        assert!(error.to_string().contains(&status.to_string()), "{error}");
        world.assert_nothing_left();
    }
}

#[test]
fn nobody_listening_is_unreachable_with_its_errno() {
    let world = World::new(Package::new().pins());
    let begin = Instant::now();
    let error = run(&world.store, &request("http://127.0.0.1:1")).unwrap_err();
    assert_eq!((error.kind(), error.step()), (PinErrorKind::Unreachable, Step::Connect), "{error}");
    assert_eq!(error.errno(), Some(rustix::io::Errno::CONNREFUSED.raw_os_error()), "{error}");
    assert!(error.hint().is_some_and(|hint| hint.contains("--from")));
    assert!(begin.elapsed().as_secs() < 5);
    world.assert_nothing_left();
}

#[test]
fn a_loopback_registry_cannot_send_us_elsewhere() {
    let package = Package::new();
    let elsewhere = Server::plain(Reply::Whole(package.tarball.clone()));
    let server = Server::plain(Reply::Redirect(elsewhere.http()));
    let world = World::new(package.pins());
    let error = run(&world.store, &request(&server.http())).unwrap_err();
    assert_eq!(error.kind(), PinErrorKind::Unreachable);
    assert_eq!(elsewhere.asked(), Vec::<String>::new());
}

#[test]
fn an_https_registry_cannot_lead_us_out_of_tls() {
    let package = Package::new();
    let clear = Server::plain(Reply::Whole(package.tarball.clone()));
    let (server, certificate) = Server::tls(Reply::Redirect(clear.http()));
    let world = World::new(package.pins());
    let mut request = request(&server.https());
    request.network.ssl_cert_file = Some(world.write("ca.pem", certificate.as_bytes()));
    let error = run(&world.store, &request).unwrap_err();
    assert_eq!(error.kind(), PinErrorKind::Unreachable, "{error}");
    assert_eq!((server.asked().len(), clear.asked().len()), (1, 0));
}

#[test]
fn https_is_checked_against_the_named_certificates() {
    let package = Package::new();
    let (server, certificate) = Server::tls(Reply::Whole(package.tarball.clone()));
    let (_other, wrong) = Server::tls(Reply::Status(500));
    let world = World::new(package.pins());
    let mut request = request(&server.https());
    request.network.ssl_cert_file = Some(world.write("wrong.pem", wrong.as_bytes()));
    let error = run(&world.store, &request).unwrap_err();
    assert_eq!((error.kind(), error.step()), (PinErrorKind::Unreachable, Step::Connect), "{error}");
    assert!(error.hint().is_some_and(|hint| hint.contains("SSL_CERT_FILE")), "{error}");
    world.assert_nothing_left();

    let folder = world.folder.path().join("certificates");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("ca.pem"), certificate).unwrap();
    request.network.ssl_cert_file = None;
    request.network.ssl_cert_dir = Some(folder.into());
    assert_eq!(run(&world.store, &request).unwrap().outcome, Outcome::Installed);
}

#[test]
fn the_proxy_is_used_unless_the_host_is_excepted() {
    let package = Package::new();
    let (server, certificate) = Server::tls(Reply::Whole(package.tarball.clone()));
    for (excepted, through_proxy) in [("example.org", 1), ("example.org, 127.0.0.1", 0)] {
        let proxy = ConnectProxy::start();
        let world = World::new(package.pins());
        let mut request = request(&server.https());
        request.network = Network {
            https_proxy: Some(format!("http://{}", proxy.address)),
            no_proxy: Some(excepted.to_owned()),
            ssl_cert_file: Some(world.write("ca.pem", certificate.as_bytes())),
            ..request.network
        };
        run(&world.store, &request).unwrap();
        assert_eq!(proxy.asked().len(), through_proxy, "{excepted}");
        assert!(proxy.asked().iter().all(|line| *line == format!("CONNECT {} HTTP/1.1", server.address)));
    }
}
