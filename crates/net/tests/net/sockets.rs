//! Sockets that another process opened, and file descriptors that run out.

use super::*;

/// Runs the test `name` of this file in a separate process, with `LARDER_TEST_CHILD` set.
fn in_child(name: &str, prepare: impl FnOnce(&mut Command)) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", name, "--nocapture"])
        .env("LARDER_TEST_CHILD", "1")
        .stdout(Stdio::null());
    prepare(&mut command);
    command.spawn().unwrap()
}

fn is_child() -> bool {
    std::env::var_os("LARDER_TEST_CHILD").is_some()
}

#[tokio::test(flavor = "multi_thread")]
async fn sockets_that_are_handed_over_are_served_and_left_open() {
    if is_child() {
        let listener = sockets_from_systemd().unwrap().remove(0);
        let server =
            Running::start_on(listener, limits(), None, TrustedProxies::default(), PATIENCE);
        within(server.gate.entered.notified()).await;
        server.gate.opened.notify_one();
        return server.stop().await;
    }
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let handed_over = OwnedFd::from(socket.try_clone().unwrap());
    let mut child =
        in_child("sockets::sockets_that_are_handed_over_are_served_and_left_open", |command| {
            // Descriptors usually begin at 3; only 0 to 2 can be set without unsafe code.
            command.stdin(handed_over).env("LISTEN_FDS", "1").env("LISTEN_FDS_FIRST_FD", "0");
        });
    let answer = http1_client()
        .get(format!("http://{address}/slow"))
        .send()
        .await
        .unwrap()
        .text()
        .await
        .unwrap();
    assert_eq!(answer, "slow");
    assert!(blocking(move || child.wait()).await.unwrap().success());
    let mut late = TcpStream::connect(address).unwrap();
    late.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    assert!(socket.accept().is_ok(), "the queue is the successor's");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lack_of_file_descriptors_passes() {
    if !is_child() {
        let mut child = in_child("sockets::a_lack_of_file_descriptors_passes", |_| ());
        return assert!(blocking(move || child.wait()).await.unwrap().success());
    }
    let server = Running::start(limits());
    server.is_alive().await;
    let (_, hard) = rlimit::Resource::NOFILE.get().unwrap();
    rlimit::Resource::NOFILE.set(64, hard).unwrap();
    let mut spare = Some(fs::File::open("/dev/null").unwrap());
    let mut clients = Vec::new();
    loop {
        // Each client takes a descriptor here and one where it is accepted.
        match TcpStream::connect(server.tcp()) {
            Ok(client) => clients.push(client),
            Err(_) if spare.take().is_some() => {}
            Err(_) => break,
        }
    }
    until(|| server.counters.accept_errors.get() > 0).await;
    drop(clients);
    server.is_alive().await;
    server.stop().await;
}
