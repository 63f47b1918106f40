//! `kill -9` of the real binary under articles and uploads: acknowledged writes exist whole, others have left nothing, and the
//! next start needs no repair.

use std::io::Write;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use super::{Place, Wheel, article_request, make_stage, noise};
use crate::client::Client;
use crate::process::Process;
use crate::{is_long, wait_until};

/// The writers: articles, small files, and files of 5 MB.
const WRITERS: [Writer; 5] =
    [Writer::Article(0), Writer::Article(1), Writer::Small(0), Writer::Small(1), Writer::Large];

#[derive(Clone, Copy, Debug)]
enum Writer {
    Article(u32),
    Small(u32),
    Large,
}

impl Writer {
    /// The article or the project.
    fn name(self) -> String {
        match self {
            Writer::Article(number) => format!("load/{number}-x"),
            Writer::Small(number) => format!("small{number}"),
            Writer::Large => "large".to_owned(),
        }
    }

    /// The text of a writer's version `version`, counted from 1, of articles.
    fn text(self, version: u32) -> Vec<u8> {
        let marker = format!("{self:?}, version {version}\n").into_bytes();
        if version.is_multiple_of(5) {
            [marker, noise(version.into(), 90_000)].concat()
        } else {
            marker
        }
    }

    /// The wheel of that version; five megabytes for [`Writer::Large`].
    fn wheel(self, version: u32) -> Wheel {
        let bytes = if let Writer::Large = self { 5_000_000 } else { 3_000 };
        // The start differs from that of all others.
        let block = [self.text(version), noise(u64::from(version) << 8, bytes)].concat();
        Wheel::new(&self.name(), &format!("{version}.0"), block, 1)
    }

    fn request(self, version: u32) -> Vec<u8> {
        match self {
            Writer::Article(_) => article_request(&self.name(), version - 1, &self.text(version)),
            Writer::Small(_) | Writer::Large => self.wheel(version).request("team/dev"),
        }
    }

    /// Writes one version after the other until the server is gone; the last that was acknowledged.
    fn write_on(self, client: &Client, from: u32, total: &AtomicU32) -> u32 {
        for version in from + 1.. {
            match client.try_exchange(&self.request(version)) {
                Some((200 | 201, _)) => total.fetch_add(1, Relaxed),
                Some((_, text)) => panic!("{self:?} {version}: {text}"),
                None => return version - 1,
            };
        }
        from
    }

    /// The versions that there are, which are without gaps.
    fn latest(self, client: &Client) -> u32 {
        let target = match self {
            Writer::Article(_) => format!("/article/{}/history?limit=1000", self.name()),
            Writer::Small(_) | Writer::Large => format!("/team/dev/+simple/{}/", self.name()),
        };
        let response =
            client.get_with(&target, &[("Accept", "application/vnd.pypi.simple.v1+json")]);
        if response.status == 404 {
            return 0;
        }
        let json = response.json();
        match self {
            Writer::Article(_) => json["latest"].as_u64().expect("a number") as u32,
            Writer::Small(_) | Writer::Large => {
                let files = json["files"].as_array().expect("files");
                let names = files.iter().map(|file| file["filename"].as_str().expect("a name"));
                let version = |name: &str| name.split('-').nth(1)?.strip_suffix(".0")?.parse().ok();
                let mut versions: Vec<u32> =
                    names.map(|name| version(name).expect("a version")).collect();
                versions.sort_unstable();
                assert_eq!(versions, (1..=versions.len() as u32).collect::<Vec<_>>());
                versions.len() as u32
            }
        }
    }

    /// Looks at the bytes of a version that there is.
    #[track_caller]
    fn check(self, client: &Client, version: u32) {
        match self {
            Writer::Article(_) => {
                let response =
                    client.get(&format!("/article/{}/{version}", self.name())).expect(200);
                assert!(response.body == self.text(version), "{self:?} {version}");
            }
            Writer::Small(_) | Writer::Large => self.wheel(version).check(client, "team/dev", &[]),
        }
    }
}

fn rounds(rounds_long: u32) -> u32 {
    if is_long() { rounds_long } else { 3 }
}

#[test]
fn on_sqlite() {
    check(&Place::sqlite(), rounds(200));
}

#[test]
fn on_postgres() {
    if let Some(place) = Place::postgres() {
        check(&place, rounds(100));
    }
}

fn check(place: &Place, rounds: u32) {
    place.init();
    make_stage(&place.start("data").client);
    let mut latest = WRITERS.map(|_| 0);
    let mut all = 0;
    for round in 0..rounds {
        let process = place.start("data");
        // An upload that never ends: it has a spool by the time of the kill.
        let half = begin_upload(&process);
        wait_until("a spool", || !place.spools().is_empty());
        let (client, total) = (process.client, AtomicU32::new(0));
        let acknowledged = std::thread::scope(|scope| {
            let total = &total;
            let write = |at: usize| {
                let from = latest[at];
                scope.spawn(move || WRITERS[at].write_on(&client, from, total))
            };
            let writers: Vec<_> = (0..WRITERS.len()).map(write).collect();
            // At another moment of the work each time.
            let after = 5 + round * 7 % 40;
            wait_until("some writes", || total.load(Relaxed) >= after);
            std::thread::sleep(Duration::from_micros(u64::from(round * 1_370 % 50_000)));
            drop(process);
            writers.into_iter().map(|writer| writer.join().expect("a writer")).collect::<Vec<_>>()
        });
        drop(half);
        all += total.load(Relaxed);

        let process = place.start("data");
        assert_eq!(place.spools(), [""; 0], "what interrupted uploads left is gone");
        process.get("/team/dev/+simple/half/").expect(404);
        for ((writer, acknowledged), latest) in WRITERS.iter().zip(acknowledged).zip(&mut latest) {
            // The one that was under way may have been kept without a word; no other may.
            let now = writer.latest(&process.client);
            assert!(
                (acknowledged..=acknowledged + 1).contains(&now),
                "{writer:?}: {now}, but {acknowledged} were acknowledged"
            );
            (*latest + 1..=now).for_each(|version| writer.check(&process.client, version));
            *latest = now;
        }
        drop(process);
        place.check(&["verify", "--quick"]);
    }
    // Once more everything, from the first version on.
    let process = place.start("data");
    for (writer, latest) in WRITERS.iter().zip(latest) {
        (1..=latest).for_each(|version| writer.check(&process.client, version));
    }
    drop(process);
    place.check(&["verify"]);
    println!("{rounds} kills, {all} acknowledged writes");
}

/// Sends half of an upload.
fn begin_upload(process: &Process) -> std::net::TcpStream {
    let request = Wheel::new("half", "1.0", noise(1, 2_000_000), 1).request("team/dev");
    let mut stream = process.connect();
    stream.write_all(&request[..request.len() / 2]).expect("the server reads");
    stream
}
