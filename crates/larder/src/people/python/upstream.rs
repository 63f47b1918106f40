//! [`Upstream`]: how it goes between a mirror and its upstream, in words and as a small chart.

use jiff::Timestamp;
use mirrors::{Requests, SPANS, UpstreamState};
use pypi::Stage;

use crate::app::App;
use crate::front::chart::{points_below, step_of};
use crate::front::display::{Time, count};

/// What is said of it.
pub(super) struct Upstream {
    pub(super) is_good: bool,
    pub(super) said: &'static str,
    /// When it last answered.
    pub(super) at: Option<Time>,
    /// Why it fails, for those who may change the mirror.
    pub(super) why: Option<String>,
    pub(super) chart: Option<Chart>,
}

/// The requests of the last day.
pub(super) struct Chart {
    pub(super) said: String,
    /// The points of a line with all of them, and of one with those that failed.
    pub(super) all: String,
    pub(super) failed: Option<String>,
}

impl Upstream {
    /// What is said of the upstream of this stage; `None` if the stage is not a mirror, or names no upstream.
    pub(super) fn of(app: &App, stage: &Stage, may_modify: bool) -> Option<Upstream> {
        let state = app.python.mirrors.state_of(stage)?;
        Some(Upstream::said(state, may_modify, app.following.is_some()))
    }

    fn said(state: UpstreamState, may_modify: bool, is_follower: bool) -> Upstream {
        let UpstreamState { offline_by, trouble, answered_at, requests } = state;
        let (is_good, said) = match (offline_by, &trouble, answered_at) {
            (Some(_), ..) => {
                (true, "The upstream is not asked, by a setting: what is known of it is served")
            }
            (None, Some(_), None) => {
                (false, "The upstream fails, and has not answered since the server started")
            }
            (None, Some(_), Some(_)) => {
                (false, "The upstream fails: what is known of it is served. It last answered")
            }
            (None, None, Some(_)) => (true, "The upstream last answered"),
            (None, None, None) if is_follower => {
                (true, "What is needed of the upstream comes from the primary")
            }
            (None, None, None) => (true, "The upstream was not asked since the server started"),
        };
        let at = answered_at.filter(|_| offline_by.is_none());
        Upstream {
            is_good,
            said,
            at: at.and_then(|at| Timestamp::try_from(at).ok()).map(Time),
            why: trouble.filter(|_| may_modify && !is_good),
            chart: Chart::of(&requests),
        }
    }
}

impl Chart {
    fn of(requests: &[Requests]) -> Option<Chart> {
        let failed: Vec<f64> = requests.iter().map(|it| f64::from(it.failed)).collect();
        let both = requests.iter().map(|it| f64::from(it.failed) + f64::from(it.answered));
        let both: Vec<f64> = both.collect();
        let sum = |of: &[f64]| of.iter().sum::<f64>() as usize;
        let (all, failures) = (sum(&both), sum(&failed));
        if all == 0 {
            return None;
        }
        let most = both.iter().copied().fold(1.0, f64::max);
        let line = |of: &[f64]| points_below(of, step_of(SPANS), most);
        let requests = count(all, "request", "requests");
        Some(Chart {
            said: format!(
                "{requests} in the last 24 hours, {failures} failed; at most {most} in half an hour"
            ),
            all: line(&both),
            failed: (failures > 0).then(|| line(&failed)),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    fn state(trouble: Option<&str>, answered: bool) -> UpstreamState {
        UpstreamState {
            offline_by: None,
            trouble: trouble.map(str::to_owned),
            answered_at: answered.then(|| SystemTime::UNIX_EPOCH + Duration::from_secs(60)),
            requests: vec![Requests::default(); SPANS],
        }
    }

    #[track_caller]
    fn check(state: UpstreamState, is_good: bool, start: &str, why: Option<&str>) {
        let said = Upstream::said(state, true, false);
        assert!(said.said.starts_with(start), "{}", said.said);
        assert_eq!((said.is_good, said.why.as_deref()), (is_good, why));
    }

    #[test]
    fn what_is_said() {
        check(state(None, true), true, "The upstream last answered", None);
        check(state(None, false), true, "The upstream was not asked", None);
        let text = "h: it answered 503";
        check(state(Some(text), true), false, "The upstream fails: ", Some(text));
        check(state(Some(text), false), false, "The upstream fails, and has not", Some(text));
        let offline =
            UpstreamState { offline_by: Some("mirror_offline"), ..state(Some(text), true) };
        check(offline, true, "The upstream is not asked", None);
        let others = Upstream::said(state(Some(text), true), false, false);
        assert_eq!((others.is_good, others.why), (false, None));
    }

    #[test]
    fn a_chart_has_two_lines_of_one_scale() {
        assert!(Chart::of(&[Requests::default(); SPANS]).is_none());
        let mut requests = [Requests::default(); SPANS];
        requests[SPANS - 1] = Requests { answered: 3, failed: 1 };
        requests[0] = Requests { answered: 2, failed: 0 };
        let chart = Chart::of(&requests).expect("requests");
        let said = "6 requests in the last 24 hours, 1 failed; at most 4 in half an hour";
        assert_eq!(chart.said, said);
        assert!(chart.all.starts_with("0,20.0 ") && chart.all.ends_with(" 240,1.0"));
        let failed = chart.failed.expect("a line");
        assert!(failed.starts_with("0,39.0 ") && failed.ends_with(" 240,29.5"), "{failed}");
    }
}
