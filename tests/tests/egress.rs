//! `--network allow`: listed hosts and nothing else, judged by real servers that look from outside.

#![expect(clippy::unwrap_used, reason = "a test: a panic is how it fails")]

use std::{path::Path, time::Duration};

use serde_json::{Value, json};
use stockade_tests::{
    Caller, ScriptedModel, World,
    internet::{Authority, Internet, OWN_ADDRESS},
    model, outside,
    run::Call,
};

const GROK: [&str; 4] = ["--provider", "grok", "--provider-sandbox", "replace"];

/// What the name server knows: ordinary names, and names that lead where no name may lead.
const NAMES: [(&str, &[&str]); 12] = [
    ("ok.example", &["1.2.3.4"]),
    ("other.example", &["1.2.3.4"]),
    ("inner.example", &["10.1.2.3"]),
    ("listed-inner.example", &["10.9.9.9"]),
    ("meta.example", &["169.254.169.254"]),
    ("loop.example", &["127.0.0.1"]),
    ("own.example", &[OWN_ADDRESS]),
    ("mixed.example", &["10.1.2.3", "1.2.3.4"]),
    ("public-six.example", &["2a00:1234::1"]),
    ("inner-six.example", &["fd00:1234::1"]),
    ("six.example", &["::1", "fd00::1", "::ffff:10.1.2.3"]),
    ("secret-data.ok.example", &["1.2.3.4"]),
];

/// What a stub of these tests begins with: `try NAME CURL-ARGUMENTS` tells whether a page was got and what the proxy said,
/// `raw NAME REQUEST` the proxy's first line, and `done` ends the turn with all that was told.
const TOOLS: &str = r#"told=
tell() { told="$told${1//$'\n'/}\\n"; }
try() { name=$1; shift
  body=$(curl -sS --max-time 8 --cacert "$PWD/ca.pem" -w ' %{http_connect} %{http_code}' "$@" 2>/dev/null); code=$?
  [ $code = 52 ] && code=56 # the end of a connection, with or without a reset
  tell "$name: exit $code,${body#here}"; }
raw() { exec 3<>/dev/tcp/127.0.0.1/3128; printf "$2" >&3; read -r -t 8 line <&3; exec 3>&-; tell "$1: ${line%$'\r'}"; }
finish() { say '{"type":"result","subtype":"success","is_error":false,"result":"'"$told"'","stop_reason":"end_turn"}'; }
"#;

fn allow<'w>(call: Call<'w>, hosts: &[&str]) -> Call<'w> {
    hosts.iter().fold(call, |call, host| call.args(&["--allow", host]))
}

/// A call of a stub inside the internet; the endpoint is nobody's.
fn stub_run<'w>(world: &'w World, internet: &Internet, name: &str, stub: &Path) -> Call<'w> {
    world
        .run(name, &GROK)
        .args(&["--endpoint", "http://127.0.0.1:9/v1", "--executable", stub.to_str().unwrap()])
        .through(&internet.enter(&world.ws()))
}

fn egress(receipt: &Value) -> &Value {
    &receipt["fence"]["network"]["egress"]
}

#[test]
fn listed_hosts_are_reached_and_every_way_around_the_list_is_turned_away() {
    for caller in Caller::both() {
        let world = World::with_providers(&caller);
        world.judges_network_itself("every decision is compared with what was tried");
        let internet = Internet::new(&NAMES);
        let hosts: Vec<&str> = NAMES.iter().map(|(name, _)| *name).collect();
        let authority = Authority::of(&hosts);
        world.write("ws/ca.pem", &authority.pem);
        let tls = Some(&authority);
        let site = internet.site("1.2.3.4:443", tls);
        let six = internet.site("[2a00:1234::1]:443", tls);
        let plain = internet.site("1.2.3.4:80", None);
        let listed_inner = internet.site("10.9.9.9:8443", tls);
        let forbidden = [
            ("10.1.2.3:443", tls),
            ("169.254.169.254:80", None),
            ("127.0.0.1:7443", tls),
            (&*format!("{OWN_ADDRESS}:443"), tls),
            ("[fd00:1234::1]:443", tls),
            ("1.2.3.4:22", None),
        ]
        .map(|(address, tls)| (address.to_owned(), internet.site(address, tls)));

        let stub = world.stub("probes", &format!("{TOOLS}{}", r#"
try tls https://ok.example/
try spelling https://OK.example./
try plain http://ok.example/
try mixed https://mixed.example/
try listed-address https://listed-inner.example:8443/
try unlisted https://other.example/
try subdomain https://secret-data.ok.example/
try port https://ok.example:22/
try literal https://1.2.3.4/
try inner https://inner.example/
try metadata http://meta.example/
try metadata-literal http://169.254.169.254/
try loopback https://loop.example:7443/
try own-address https://own.example/
try public-six https://public-six.example/
try inner-six https://inner-six.example/
try six https://six.example/
try unknown https://unknown.example/
try closed https://ok.example:444/
try fronting --connect-to other.example:443:ok.example:443 https://other.example/
try no-tls --proxytunnel http://ok.example:443/
try relayed --proxytunnel --proxy http://ok.example:80 http://other.example/
try no-proxy --noproxy '*' https://1.2.3.4/ -k
try no-name --noproxy '*' https://ok.example/
raw octal 'CONNECT 012.1.2.3:443 HTTP/1.1\r\n\r\n'
raw number 'CONNECT 167838211:443 HTTP/1.1\r\n\r\n'
raw hexadecimal 'CONNECT 0x0a010203:443 HTTP/1.1\r\n\r\n'
raw mapped 'CONNECT [::ffff:10.1.2.3]:443 HTTP/1.1\r\n\r\n'
raw zone 'CONNECT [fe80::1%%25up0]:443 HTTP/1.1\r\n\r\n'
raw user 'CONNECT user:hunter2@ok.example:443 HTTP/1.1\r\n\r\n'
raw user-plain 'GET http://user:hunter2@ok.example/ HTTP/1.1\r\nhost: ok.example\r\n\r\n'
raw other-host 'GET http://ok.example/ HTTP/1.1\r\nhost: inner.example\r\n\r\n'
raw origin-form 'GET / HTTP/1.1\r\nhost: ok.example\r\n\r\n'
raw https-in-plain 'GET https://ok.example/ HTTP/1.1\r\nhost: ok.example\r\n\r\n'
exec 3<>/dev/tcp/127.0.0.1/3128
printf 'GET http://ok.example/kept HTTP/1.1\r\nhost: ok.example\r\n\r\nGET http://other.example/kept HTTP/1.1\r\nhost: other.example\r\n\r\n' >&3
tell "kept: $(timeout 2 cat <&3 | grep -a -o 'HTTP/1.1 [0-9]*' | tr '\n' ' ')"
finish"#));
        let call = allow(
            stub_run(&world, &internet, "probes", &stub),
            &[
                "ok.example",
                "ok.example:80",
                "mixed.example",
                "listed-inner.example:8443",
                "10.9.9.9:8443",
                "inner.example",
                "meta.example:80",
                "loop.example:7443",
                "own.example",
                "six.example",
                "public-six.example",
                "inner-six.example",
                "unknown.example",
                "ok.example:444",
            ],
        );
        call.end().expect_code(0);
        let receipt = world.receipt("probes");
        let told = world.answer("probes").unwrap();
        // curl: 0 got it, 6 no name, 7 no connection, 35 TLS refused, 56 refused by the proxy or cut off.
        assert_eq!(
            told.trim_end().lines().collect::<Vec<_>>(),
            [
                "tls: exit 0, 200 200",
                "spelling: exit 0, 200 200",
                "plain: exit 0, 000 200",
                "mixed: exit 0, 200 200",
                "listed-address: exit 0, 200 200",
                "unlisted: exit 56, 403 000",
                "subdomain: exit 56, 403 000",
                "port: exit 56, 403 000",
                "literal: exit 56, 403 000",
                "inner: exit 56, 403 000",
                "metadata: exit 0,stockade: meta.example leads to a link-local address, which is not listed itself (egress-address) 000 403",
                "metadata-literal: exit 0,stockade: 169.254.169.254:80 is an address that is not on the list (egress-literal) 000 403",
                "loopback: exit 56, 403 000",
                "own-address: exit 56, 403 000",
                "public-six: exit 0, 200 200",
                "inner-six: exit 56, 403 000",
                "six: exit 56, 403 000",
                "unknown: exit 56, 502 000",
                "closed: exit 56, 502 000",
                "fronting: exit 35, 200 000",
                "no-tls: exit 56, 200 000",
                "relayed: exit 5, 000 000",
                "no-proxy: exit 7, 000 000",
                "no-name: exit 6, 000 000",
                "octal: HTTP/1.1 400 Bad Request",
                "number: HTTP/1.1 400 Bad Request",
                "hexadecimal: HTTP/1.1 400 Bad Request",
                "mapped: HTTP/1.1 400 Bad Request",
                "zone: HTTP/1.1 400 Bad Request",
                "user: HTTP/1.1 400 Bad Request",
                "user-plain: HTTP/1.1 400 Bad Request",
                "other-host: HTTP/1.1 400 Bad Request",
                "origin-form: HTTP/1.1 400 Bad Request",
                "https-in-plain: HTTP/1.1 400 Bad Request",
                "kept: HTTP/1.1 200 HTTP/1.1 403",
            ],
            "{receipt}"
        );

        // What the servers saw: the real host could have reached each of them.
        for (address, site) in forbidden {
            assert_eq!(site.connections(), [""; 0], "{address}");
            assert!(internet.host_reaches(&address), "{address} is no control: the host cannot reach it");
        }
        assert_eq!(
            plain.connections(),
            ["GET / HTTP/1.1 for ok.example; ", "GET /kept HTTP/1.1 for ok.example; "]
        );
        assert_eq!(listed_inner.connections(), ["GET / HTTP/1.1 for listed-inner.example:8443; "]);
        assert_eq!(six.connections(), ["GET / HTTP/1.1 for public-six.example; "]);
        let through: Vec<String> = site.connections().into_iter().filter(|c| !c.is_empty()).collect();
        assert_eq!(
            through,
            [
                "GET / HTTP/1.1 for ok.example; ",
                "GET / HTTP/1.1 for ok.example.; ",
                "GET / HTTP/1.1 for mixed.example; "
            ]
        );
        let looked_up = internet.looked_up();
        for name in ["other.example", "secret-data.ok.example"] {
            assert!(!looked_up.iter().any(|n| n == name), "{name} was looked up: {looked_up:?}");
        }

        // And what the receipt says of it.
        assert_eq!(receipt["fence"]["network"]["policy"], "allow");
        let egress = egress(&receipt);
        assert_eq!(
            egress["passed"],
            json!({
                "ok.example:443": 2, "ok.example:80": 2, "mixed.example:443": 1, "public-six.example:443": 1, "listed-inner.example:8443": 1,
            })
        );
        assert_eq!(
            egress["turnedAway"],
            json!({
                "egress-address": 6, "egress-literal": 2, "egress-name": 1, "egress-not-listed": 3, "egress-port": 1,
                "egress-request": 10, "egress-tls": 2, "egress-unreachable": 1,
            })
        );
        assert_eq!(
            (&egress["seesInsideTls"], egress["listed"].as_array().unwrap().len()),
            (&json!(false), 14)
        );
        assert!(egress["bytesSent"].as_u64() > Some(1_000) && egress["bytesReceived"].as_u64() > Some(3_000));
        let network =
            receipt["guarantees"].as_array().unwrap().iter().find(|g| g["id"] == "network").unwrap();
        assert_eq!(network["held"], true, "{network}");
        let decisions: Vec<Value> = World::events(&receipt)
            .into_iter()
            .filter(|e| e["event"]["code"].as_str().is_some_and(|code| code.starts_with("egress")))
            .collect();
        assert_eq!(decisions.len(), 7 + 26, "{decisions:#?}");
        assert!(
            decisions.iter().all(|e| e["source"] == "gateway" && e["event"]["kind"] == "network-decision")
        );
        let records = std::fs::read_to_string(
            Path::new(receipt["runDirectory"].as_str().unwrap()).join("events.ndjson"),
        )
        .unwrap();
        assert!(!records.contains("hunter2") && !receipt.to_string().contains("hunter2"));
        outside::wait_for_no_process_fenced_for(&world, Duration::from_secs(2));
    }
}

#[test]
fn one_lane_cannot_use_the_proxy_of_another() {
    for caller in Caller::both() {
        let internet = Internet::new(&NAMES);
        let authority = Authority::of(&["ok.example", "other.example"]);
        let site = internet.site("1.2.3.4:443", Some(&authority));
        let [first, second] = [(); 2].map(|()| {
            let world = World::with_providers(&caller);
            world.expects_network(&["ok.example:443", "other.example:443"]);
            world.write("ws/ca.pem", &authority.pem);
            world
        });
        // The second lane waits with its proxy open until the first has tried everything.
        let waiting = second.stub(
            "waits",
            &format!("{TOOLS}try own https://other.example/\nwhile [ ! -e go ]; do sleep 0.05; done\nfinish"),
        );
        let second_run = allow(stub_run(&second, &internet, "second", &waiting), &["other.example"]).start();
        outside::wait_until("the second lane has used its proxy", || !site.connections().is_empty());
        assert!(!internet.host_reaches("127.0.0.1:3128"), "the proxy listens on the host");

        let trying = first.stub(
            "tries",
            &format!(
                "{TOOLS}try own https://ok.example/\ntry theirs https://other.example/\n\
                 for at in 127.0.0.2 127.1.1.1 {OWN_ADDRESS} 45.45.45.2; do\n\
                 try $at --proxy http://$at:3128 https://other.example/; done\nfinish"
            ),
        );
        allow(stub_run(&first, &internet, "first", &trying), &["ok.example"]).end().expect_code(0);
        std::fs::write(second.path("ws/go"), "").unwrap();
        second_run.wait(Duration::from_secs(30)).expect_code(0);

        assert_eq!(
            first.answer("first").unwrap().trim_end().lines().collect::<Vec<_>>(),
            [
                "own: exit 0, 200 200",
                "theirs: exit 56, 403 000",
                // The whole of 127.0.0.0/8 is this lane's own, and nobody listens there.
                "127.0.0.2: exit 7, 000 000",
                "127.1.1.1: exit 7, 000 000",
                &*format!("{OWN_ADDRESS}: exit 7, 000 000"),
                "45.45.45.2: exit 7, 000 000",
            ]
        );
        let (first, second) = (first.receipt("first"), second.receipt("second"));
        assert_eq!(egress(&first)["passed"], json!({ "ok.example:443": 1 }));
        assert_eq!(egress(&first)["turnedAway"], json!({ "egress-not-listed": 1 }));
        assert_eq!(egress(&second)["passed"], json!({ "other.example:443": 1 }));
        assert_eq!(egress(&second)["turnedAway"], json!({}));
    }
}

#[test]
fn every_rung_has_the_listener_and_no_other_way() {
    for caller in Caller::both() {
        let world = World::with_providers(&caller);
        world.expects_network(&["ok.example:443", "other.example:443"]);
        let internet = Internet::new(&NAMES);
        let authority = Authority::of(&["ok.example"]);
        world.write("ws/ca.pem", &authority.pem);
        let site = internet.site("1.2.3.4:443", Some(&authority));
        let stub = world.stub(
            "rungs",
            &format!(
                "{TOOLS}try listed https://ok.example/\ntry unlisted https://other.example/\n\
                 try direct --noproxy '*' -k https://1.2.3.4/\nfinish"
            ),
        );
        let rungs = ["nsl", "ns", "ns-nest", "ns-hostproc", "bs"];
        for rung in rungs {
            let call = stub_run(&world, &internet, rung, &stub).args(&["--rung", rung]);
            let call =
                call.args(&["--accept-missing", "process-visibility", "--accept-missing", "no-nesting"]);
            allow(call, &["ok.example"]).end().expect_code(0);
            assert_eq!(
                world.answer(rung).unwrap().trim_end().lines().collect::<Vec<_>>(),
                ["listed: exit 0, 200 200", "unlisted: exit 56, 403 000", "direct: exit 7, 000 000"],
                "{} on {rung}",
                caller.name
            );
            assert_eq!(world.receipt(rung)["fence"]["rung"], rung);
        }
        assert_eq!(site.connections().len(), rungs.len());
    }
}

#[test]
fn the_real_agent_completes_with_listed_hosts_and_its_tools_reach_them() {
    for caller in Caller::both() {
        let world = World::with_providers(&caller);
        world.expects_network(&["ok.example:443", "other.example:443"]);
        let internet = Internet::new(&NAMES);
        let authority = Authority::of(&["ok.example", "other.example"]);
        world.write("ws/ca.pem", &authority.pem);
        let site = internet.site("1.2.3.4:443", Some(&authority));
        let command = "curl -sS --cacert ca.pem https://ok.example/; echo; \
                       curl -sS --cacert ca.pem https://other.example/ || echo turned away";
        let scenario = json!({
            "version": 1, "name": "egress", "steps": [model::shell(command)], "otherwise": { "text": "done" },
        });
        let program = internet.enter(&world.ws());
        let model = ScriptedModel::through(&world, &scenario, &[], &program);
        let call = world.run("grok", &GROK).args(&["--endpoint", &model.url]).through(&program);
        allow(call, &["ok.example"]).end().expect_code(0);
        let told = model.tool_result(0);
        assert!(told.contains("here") && told.contains("turned away"), "{told}");
        let receipt = world.receipt("grok");
        assert_eq!(
            (receipt["status"].as_str(), receipt["modelIdentity"]["evidence"].as_str()),
            (Some("complete"), Some("wire")),
            "{receipt}"
        );
        assert_eq!(egress(&receipt)["passed"], json!({ "ok.example:443": 1 }), "{receipt}");
        assert_eq!(site.connections(), ["GET / HTTP/1.1 for ok.example; "]);
    }
}

#[test]
fn policies_that_say_two_things_are_usage_errors_before_anything_is_made() {
    let world = World::new(&Caller::fresh_user());
    let before = outside::picture(world.root());
    for (flags, message) in [
        (&["--network", "none"][..], "--network none"),
        (&["--network", "allow"], "names no host"),
        (&["--network", "model", "--allow", "a.example"], "no meaning with `--network model`"),
        (&["--network", "host", "--allow", "a.example"], "no meaning with `--network host`"),
        (&["--allow", "*.example.com"], "wildcards"),
        (&["--allow", "https://a.example/"], "without scheme"),
        (&["--allow", "127.1:80"], "usual form"),
        (&["--allow", "bücher.example"], "xn--"),
        (&["--allow", "a.example:0"], "1 to 65535"),
        (&["--allow", "user:hunter2@a.example"], "a user or a password"),
        (&["--allow", "a.example", "--env", "HTTPS_PROXY"], "set by Stockade inside the fence"),
    ] {
        let call = world.run("bad", &GROK).args(&["--endpoint", "http://127.0.0.1:9/v1"]).args(flags);
        let ended = call.end().expect_code(64);
        assert!(ended.stderr.contains(message), "{flags:?}: {}", ended.stderr);
        assert!(!ended.stderr.contains("hunter2"), "{}", ended.stderr);
    }
    std::fs::remove_file(world.path("out/prompt.md")).unwrap();
    assert_eq!(outside::picture(world.root()), before);
}

#[test]
fn a_list_in_a_file_serves_the_policy_and_a_flag_replaces_it() {
    let world = World::with_providers(&Caller::fresh_user());
    let plan = |flags: &[&str]| {
        let prompt = world.write("out/prompt.md", "Plan.\n");
        let call = world.call(&["plan", "--json", "--endpoint", "http://127.0.0.1:9/v1", "--prompt"]);
        let cwd = world.ws().display().to_string();
        let ended = call
            .args(&[prompt.to_str().unwrap(), "--cwd", &cwd])
            .args(&GROK)
            .args(flags)
            .end()
            .expect_code(0);
        let plan: Value = serde_json::from_str(&ended.stdout).unwrap();
        (plan["network"].clone(), plan["allow"].clone(), plan["env"]["HTTPS_PROXY"].clone())
    };
    let proxy = json!("http://127.0.0.1:3128");
    world.write(
        "home/.config/stockade/config.toml",
        "[defaults]\nallow = [\"a.example\", \"b.example:80\"]\n",
    );
    world.give("home/.config");
    assert_eq!(plan(&[]), (json!("model"), json!([]), json!(null)), "a list alone changes nothing");
    let from_file = json!(["a.example:443", "b.example:80"]);
    assert_eq!(plan(&["--network", "allow"]), (json!("allow"), from_file, proxy.clone()));
    let named = json!(["c.example:443"]);
    assert_eq!(plan(&["--allow", "C.example", "--allow", "c.example:443"]), (json!("allow"), named, proxy));
    world.write("home/.config/stockade/config.toml", "[defaults]\nallow = [\"a.example\",\n  \"*.b\"]\n");
    let ended = world.run("bad", &GROK).end().expect_code(64);
    assert!(ended.stderr.contains("wildcards") && ended.stderr.contains("line "), "{}", ended.stderr);
}
