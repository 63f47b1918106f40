//! Makes the metrics of other crates: each crate has its own `Counters`, without names.

use prometheus::IntCounterVec;
use resources::cpu_pool;
use state::stored;

use super::maker::Maker;
use crate::published::changes;

pub(super) fn subscribers(make: &Maker) -> changes::Counters {
    changes::Counters {
        open: make.metric("larder_changes_subscribers", "Clients that follow a feed of changes now.", &[]),
        refused: make.metric(
            "larder_changes_subscribers_refused_total",
            "Subscriptions to a feed of changes that were refused because there were too many, in all or of one address.",
            &[],
        ),
        events: make.metric(
            "larder_changes_events_total",
            "Events sent to clients that follow a feed of changes.",
            &[],
        ),
    }
}

pub(super) fn connections(make: &Maker) -> net::Counters {
    net::Counters {
        connections_open: make.metric("larder_http_connections_open", "Connections open now.", &[]),
        connections_accepted: make.metric(
            "larder_http_connections_accepted_total",
            "Accepted connections.",
            &[],
        ),
        connections_refused: make.metric(
            "larder_http_connections_refused_total",
            "Connections closed at once because there are too many, in all or of one client.",
            &[],
        ),
        connections_memory: make.metric(
            "larder_http_connections_memory_bytes",
            "Memory that connections take, as limits.connections_memory_bytes_max counts it.",
            &[],
        ),
        connections_out_of_room: make.metric(
            "larder_http_connections_out_of_memory_total",
            "Requests refused and connections closed because the memory for connections was taken.",
            &[],
        ),
        connections_cut: make.metric(
            "larder_http_connections_cut_total",
            "Connections cut off because a client took too long.",
            &[],
        ),
        http2_floods: make.metric(
            "larder_http2_floods_total",
            "HTTP/2 connections closed because their clients reset or broke too many streams.",
            &[],
        ),
        tls_errors: make.metric("larder_tls_errors_total", "TLS handshakes that failed.", &[]),
        accept_errors: make.metric(
            "larder_http_accept_errors_total",
            "Errors of accepting connections.",
            &[],
        ),
    }
}

pub(super) fn commits(make: &Maker) -> stored::Commits {
    let failures: IntCounterVec = make.metric(
        "larder_store_commit_failures_total",
        "Failed commits, by reason: overtaken by another write (and decided again), refused by the database, failed.",
        &["reason"],
    );
    stored::Commits {
        seconds: make.metric(
            "larder_store_commit_seconds",
            "Duration of successful commits.",
            &[0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0],
        ),
        overtaken: failures.with_label_values(&["overtaken"]),
        refused: failures.with_label_values(&["refused"]),
        failed: failures.with_label_values(&["failed"]),
    }
}

pub(super) fn passwords(make: &Maker, login_failures: &IntCounterVec) -> passwords::Counters {
    let throttled: IntCounterVec = make.metric(
        "larder_logins_throttled_total",
        "Passwords refused by throttling, by the limit that was reached: client_and_account, client, account.",
        &["by"],
    );
    passwords::Counters {
        waiting: make.metric("larder_passwords_waiting", "Passwords that wait to be hashed.", &[]),
        refused: make.metric(
            "larder_passwords_refused_total",
            "Passwords that were not hashed because too many waited.",
            &[],
        ),
        wrong: login_failures.with_label_values(&["wrong_password"]),
        wrong_again: login_failures.with_label_values(&["wrong_password_again"]),
        throttled: passwords::ThrottleBound::ALL
            .map(|bound| throttled.with_label_values(&[bound.name()])),
        episodes: make.metric(
            "larder_logins_throttled",
            "Clients, accounts and pairs of them whose wrong passwords are throttled now.",
            &[],
        ),
    }
}

pub(super) fn computations(make: &Maker) -> cpu_pool::Counters {
    cpu_pool::Counters {
        queue_length: make.metric(
            "larder_cpu_pool_queue_length",
            "Computations that wait for a thread.",
            &[],
        ),
        busy_threads: make.metric("larder_cpu_pool_busy_threads", "Threads that compute.", &[]),
        seconds: make.metric(
            "larder_cpu_pool_seconds",
            "Time that a computation took once it had begun.",
            &[0.0001, 0.001, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0],
        ),
        refused: make.metric(
            "larder_cpu_pool_refused_total",
            "Computations refused because too many were waiting.",
            &[],
        ),
        abandoned: make.metric(
            "larder_cpu_pool_abandoned_total",
            "Computations given up by their clients before they began.",
            &[],
        ),
    }
}
