//! Pages of stages that are mirrors, or have mirrors among their bases: made of what is known of the upstreams.
//!
//! Upstreams are asked only for senders who may read the stage. A page is finished once for each state of the stages and of
//! their upstreams.

use std::sync::Arc;

use axum::response::Response;
use http::header::{CACHE_CONTROL, HeaderName, WARNING};
use http::{HeaderMap, HeaderValue, StatusCode};
use jiff::Timestamp;
use mirrors::{
    CachedPage, MANY_FILES, Mirrors, PageHandle, PageLookup, StaleReason, UpstreamError,
};
use pypi::{
    Judge, Links, MergedPage, NoPage, Page, PageForm, PageRequest, ProjectName, RenderedPage,
    ResolutionOrder, Stage, StageName, UpstreamProject, merged_list, merged_page, of_one_project,
};
use resources::turns::Turn;
use state::stored::Stored;

use super::{NegotiatedForm, PRIVATE, PUBLIC, X_DEVPI_ABSOLUTE_URLS, checked, respond_if_open};
use crate::front::error::HttpError;
use crate::front::negotiation::accepted_encoding;
use crate::front::respond::{Conditions, respond_now};
use crate::front::turns::turn;
use crate::protocols::python::ask::Ask;
use crate::protocols::python::reply as answer;
use crate::protocols::python::rights::{IndexPart, admit, refused_reader};

/// For pages that upstream has not confirmed in time: caches must not keep them.
const STALE: HeaderValue =
    HeaderValue::from_static("max-age=0, must-revalidate, no-cache, no-store");
const WARNING_STALE: HeaderValue = HeaderValue::from_static("110 larder \"Response is Stale\"");
const WARNING_OFFLINE: HeaderValue =
    HeaderValue::from_static("112 larder \"Disconnected Operation\"");

/// The upstream's serial of a page, as clients that mirror an index ask for it.
const X_PYPI_LAST_SERIAL: HeaderName = HeaderName::from_static("x-pypi-last-serial");

/// A mirror, and what is known of it.
pub(crate) type MirrorPage<'stage> = (&'stage Arc<Stage>, Arc<CachedPage>);

/// The error of a mirror whose upstream has never told.
pub(crate) fn failed(stage: &str, trouble: &UpstreamError) -> HttpError {
    failed_with(
        format!("the mirror {stage} has no usable answer from its upstream: {trouble}"),
        trouble,
    )
}

fn failed_with(text: String, trouble: &UpstreamError) -> HttpError {
    match (trouble.is_busy, trouble.is_offline) {
        (true, _) => HttpError::unavailable(text, 2),
        // The status of a cache that may not ask; pip does not retry it.
        (false, true) => HttpError::refused(StatusCode::GATEWAY_TIMEOUT, text),
        (false, false) => {
            HttpError::refused(StatusCode::BAD_GATEWAY, text).after(trouble.retry_after_seconds)
        }
    }
}

/// The page of a stage with mirrors, if everybody may read it, it is finished, and upstream is asked nothing for it.
pub(super) fn page_now(
    mirrors: &Mirrors,
    headers: &HeaderMap,
    stored: &Stored,
    request: PageRequest<'_>,
    wanted: &NegotiatedForm,
) -> Option<Response> {
    let order = ResolutionOrder::of(&stored.index, request.stage).filter(|it| it.has_mirror())?;
    let mut versions = Vec::new();
    for stage in order.mirrors_of(request.project).asked {
        let Some(mirror) = mirrors.of(stage) else { continue };
        versions.push(mirrors.project_at_hand(&mirror, request.project)?.version);
    }
    let stamp = order.project_stamp(request.project);
    let finished = mirrors.finished(request, stamp, &versions)?;
    let response = respond_if_open(headers, stored, &finished.page, wanted)?;
    Some(with_serial(response, finished.page.last_serial()))
}

/// The page of a stage with mirrors in its `order`.
pub(super) async fn page(
    ask: &Ask,
    order: &ResolutionOrder<'_>,
    project: Option<&ProjectName>,
    request: PageRequest<'_>,
    wanted: &NegotiatedForm,
) -> Result<Response, HttpError> {
    let about = project.map_or(IndexPart::Whole, |name| IndexPart::Project(Some(name)));
    admit(ask, order, about).await?;
    let blocked = order.mirrors_of(request.project).blocked;
    let (told, lists, stale) = match project {
        Some(project) => {
            let told = project_of(ask, order, project).await?;
            let stale = told.stale;
            (Some((project, told)), Vec::new(), stale)
        }
        None => {
            let (lists, stale) = lists_of(ask, order).await?;
            (None, lists, stale)
        }
    };
    let stamp = match request.project {
        "" => order.list_stamp(),
        project => order.project_stamp(project),
    };
    let of = |heard: &[MirrorPage<'_>]| heard.iter().map(|(_, known)| known.version).collect();
    let mut versions: Vec<u64> =
        told.as_ref().map_or_else(|| of(&lists), |(_, told)| told.versions.clone());
    let mirrors = &ask.app.python.mirrors;
    let is_absolute = ask.head.headers.contains_key(X_DEVPI_ABSOLUTE_URLS);
    let encoding = accepted_encoding(&ask.head.headers);
    let at_hand = mirrors.finished(request, stamp, &versions).filter(|it| {
        let body = it.page.body();
        !is_absolute && body.has(encoding)
    });
    // A finished page needs no other. All else is made in a turn.
    let (heard, _turn) = match (&at_hand, told) {
        (Some(_), _) => (Vec::new(), None),
        (None, Some((project, told))) => {
            let (heard, turn) = told.in_use(ask, project).await?;
            versions = of(&heard);
            (heard, Some(turn))
        }
        (None, None) => (lists, Some(turn(&ask.app.python.making_lists).await?)),
    };
    let render = |links| rendered(order, project, request.form, &heard, &blocked, links);
    let missing = || {
        let mut text = NoPage::NoProject(request.project.to_owned()).to_string();
        if let Some(stage) = order.stages().iter().find(|it| it.owns_name(request.project)) {
            text.push_str(&format!("; {} keeps the name, so no mirror is asked", stage.name()));
        }
        Ok(answer::refusal(ask, StatusCode::NOT_FOUND, &text))
    };
    if is_absolute {
        let conditions = Conditions::of(&ask.head.method, &ask.head.headers);
        let made = tokio::task::block_in_place(|| {
            let RenderedPage { reply, last_serial, .. } = render(Links::Absolute(ask.root_url()))?;
            Some((respond_now(reply, StatusCode::OK, &conditions), last_serial))
        });
        let Some((mut response, last_serial)) = made else { return missing() };
        let is_public = order.readers().is_empty();
        let headers = response.headers_mut();
        headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static(wanted.content_type));
        headers.insert(http::header::VARY, wanted.varies());
        headers.insert(CACHE_CONTROL, if is_public { PUBLIC } else { PRIVATE });
        return Ok(marked(with_serial(response, last_serial), stale));
    }
    // Another request may have made it meanwhile.
    let at_hand = at_hand.or_else(|| mirrors.finished(request, stamp, &versions));
    let finished = match at_hand {
        Some(finished) => finished,
        None => {
            let made = tokio::task::block_in_place(|| {
                let root_url = ask.app.config.public_url.as_deref();
                let rendered = render(Links::within(request.depth, root_url))?;
                Some(Page::finished(rendered, order, request))
            });
            let Some(page) = made else { return missing() };
            mirrors.finish(request, page, stamp, versions)
        }
    };
    let page = &finished.page;
    if !page.is_public() {
        let principal = ask.principal().await?;
        if !page.admits(&principal, request) {
            let own = ask.stored.index.stage(request.stage).map(|own| &**own);
            return Err(refused_reader(&principal, own, request.portion()));
        }
    }
    if !page.body().has(encoding) {
        tokio::task::block_in_place(|| page.body().form(encoding));
    }
    let response = checked(ask, page, wanted, encoding)?;
    Ok(marked(with_serial(response, page.last_serial()), stale))
}

/// The response, with the upstream's serial of the page.
fn with_serial(mut response: Response, serial: Option<u64>) -> Response {
    if let Some(serial) = serial {
        response.headers_mut().insert(X_PYPI_LAST_SERIAL, serial.into());
    }
    response
}

/// The response, marked as not confirmed if it is not.
pub(crate) fn marked(mut response: Response, stale: Option<StaleReason>) -> Response {
    let warning = match stale {
        None => return response,
        Some(StaleReason::Late) => WARNING_STALE,
        Some(StaleReason::Offline) => WARNING_OFFLINE,
    };
    response.headers_mut().insert(CACHE_CONTROL, STALE);
    response.headers_mut().insert(WARNING, warning);
    response
}

/// The page; `None` if neither the stages nor the upstreams have the project.
fn rendered(
    order: &ResolutionOrder<'_>,
    project: Option<&ProjectName>,
    form: PageForm,
    heard: &[MirrorPage<'_>],
    blocked: &[&StageName],
    links: Links<'_>,
) -> Option<RenderedPage> {
    let Some(project) = project else {
        let lists: Vec<_> = heard
            .iter()
            .filter_map(|(mirror, known)| Some((mirror.name(), &**known.names()?)))
            .collect();
        return Some(merged_list(order, &lists, form, links, Timestamp::now()));
    };
    let own = order.project(project.as_str());
    let upstream: Vec<UpstreamProject<'_>> = heard
        .iter()
        .filter_map(|(mirror, known)| Some(UpstreamProject { mirror, page: known.page()? }))
        .collect();
    if own.is_none() && upstream.is_empty() {
        return None;
    }
    let (upstream, apart) = of_one_project(order, project, upstream);
    let judge = Judge::of(order, project, Timestamp::now());
    let (own, judge) = (own.as_ref(), judge.as_ref());
    let (upstream, apart) = (&upstream, &apart);
    let merged = MergedPage { order, own, upstream, blocked, apart, project, judge };
    Some(merged_page(&merged, form, links))
}

/// Asks the mirrors in `order` for a project; returns what each has told.
pub(crate) async fn project_of<'order>(
    ask: &Ask,
    order: &ResolutionOrder<'order>,
    project: &ProjectName,
) -> Result<MirrorPages<'order>, HttpError> {
    let mirrors = &ask.app.python.mirrors;
    let mut told = MirrorPages {
        told: Vec::new(),
        versions: Vec::new(),
        files: 0,
        has_page: false,
        stale: None,
    };
    for stage in order.mirrors_of(project.as_str()).asked {
        let Some(mirror) = mirrors.of(stage) else { continue };
        let found = mirrors.project(&mirror, project, false).await;
        let PageLookup { known, stale, trouble } =
            found.map_err(|trouble| failed(stage.name().as_str(), &trouble))?;
        if let Some(trouble) = trouble.filter(|it| it.has_no_list && is_asked(order, stage)) {
            return Err(failed(stage.name().as_str(), &trouble));
        }
        told.stale = told.stale.max(stale);
        told.files += known.files();
        told.has_page |= known.page().is_some();
        told.versions.push(known.version);
        told.told.push((stage, PageHandle::of(&known)));
    }
    Ok(told)
}

/// What mirrors have told, while a request waits for its turn or for another mirror: pages of many files are let go.
pub(crate) struct MirrorPages<'order> {
    told: Vec<(&'order Arc<Stage>, PageHandle)>,
    /// The numbers of their contents: others for other contents.
    pub(crate) versions: Vec<u64>,
    /// How many files the pages have together.
    files: usize,
    /// Whether one of them has the project.
    pub(crate) has_page: bool,
    pub(crate) stale: Option<StaleReason>,
}

impl<'order> MirrorPages<'order> {
    /// What they know now, for a request that has its turn.
    async fn again(
        self,
        ask: &Ask,
        project: &ProjectName,
    ) -> Result<Vec<MirrorPage<'order>>, HttpError> {
        let mut heard = Vec::new();
        for (stage, kept) in self.told {
            let known = match ask.app.python.mirrors.of(stage) {
                Some(mirror) => ask.app.python.mirrors.again(&mirror, project, &kept).await,
                None => None,
            };
            let gone = || {
                let stage = stage.name();
                let text = format!(
                    "the page of {project} of the mirror {stage} was driven out of the cache"
                );
                HttpError::unavailable(text, 2)
            };
            heard.push((stage, known.ok_or_else(gone)?));
        }
        Ok(heard)
    }

    /// What they know, and the turn to use it.
    pub(crate) async fn in_use(
        self,
        ask: &Ask,
        project: &ProjectName,
    ) -> Result<(Vec<MirrorPage<'order>>, [Turn; 2]), HttpError> {
        let turn = ask.app.python.mirrors.turn_to_use(self.files).await;
        let turn = turn.map_err(|trouble| failed_with(trouble.to_string(), &trouble))?;
        Ok((self.again(ask, project).await?, turn))
    }

    /// What they know, and the turns to plan what is shown of it. Meanwhile no other large page is read or rendered if these are
    /// large.
    pub(crate) async fn in_plan(
        self,
        ask: &Ask,
        project: &ProjectName,
    ) -> Result<(Vec<MirrorPage<'order>>, Vec<Turn>, Turn), HttpError> {
        let entered = ask.app.python.mirrors.plans.enter(self.files).await;
        let (place, turn) = entered.map_err(|most| {
            let text = format!("{most} requests for projects of mirrors wait already");
            HttpError::unavailable(text, 2)
        })?;
        let mut places = vec![place];
        if self.files > MANY_FILES {
            let using = ask.app.python.mirrors.turn_to_use(self.files).await;
            places.extend(using.map_err(|trouble| failed_with(trouble.to_string(), &trouble))?);
        }
        Ok((self.again(ask, project).await?, places, turn))
    }
}

/// Whether this is the mirror that was asked, and not a base: if it has no list of projects, somebody should know.
fn is_asked(order: &ResolutionOrder<'_>, stage: &Stage) -> bool {
    order.stages().first().is_some_and(|asked| asked.name() == stage.name())
}

/// Leaves out mirrors whose upstreams have a different project with this name.
pub(crate) fn keep_one_project(
    order: &ResolutionOrder<'_>,
    project: &ProjectName,
    heard: &mut Vec<MirrorPage<'_>>,
) {
    let upstream = heard.iter();
    let upstream = upstream
        .filter_map(|(mirror, known)| Some(UpstreamProject { mirror, page: known.page()? }));
    let (_, apart) = of_one_project(order, project, upstream.collect());
    let apart: Vec<StageName> = apart.into_iter().cloned().collect();
    heard.retain(|(mirror, _)| !apart.contains(mirror.name()));
}

/// The mirrors whose files of a project count: those that are asked, without those whose upstreams have a different project
/// with this name. If something unknown might decide that, it is an error.
pub(crate) async fn mirrors_of_one_project<'order>(
    ask: &Ask,
    order: &ResolutionOrder<'order>,
    project: &ProjectName,
) -> Result<Vec<&'order Arc<Stage>>, HttpError> {
    let asked = order.mirrors_of(project.as_str());
    if asked.are_one || asked.asked.len() < 2 {
        return Ok(asked.asked);
    }
    let mut pages = Vec::new();
    for stage in asked.asked {
        let Some(mirror) = ask.app.python.mirrors.of(stage) else { continue };
        let page = ask.app.python.mirrors.page_to_judge_by(&mirror, project).await;
        let page = page.map_err(|trouble| failed(stage.name().as_str(), &trouble))?;
        // Its files may be many, and the next mirror may take long.
        pages.extend(page.map(|page| (stage, page.outline())));
    }
    let upstream = pages.iter().map(|(mirror, page)| UpstreamProject { mirror, page }).collect();
    let (_, apart) = of_one_project(order, project, upstream);
    let stages = pages.iter().map(|(stage, _)| *stage);
    Ok(stages.filter(|stage| !apart.contains(&stage.name())).collect())
}

/// What the mirrors know of their lists of projects.
async fn lists_of<'order>(
    ask: &Ask,
    order: &ResolutionOrder<'order>,
) -> Result<(Vec<MirrorPage<'order>>, Option<StaleReason>), HttpError> {
    let mirrors = &ask.app.python.mirrors;
    let (mut heard, mut any_stale) = (Vec::new(), None);
    for stage in order.mirrors() {
        let Some(mirror) = mirrors.of(stage) else { continue };
        let found = match mirrors.list(&mirror).await {
            Err(trouble) if trouble.has_no_list && !is_asked(order, stage) => continue,
            found => found.map_err(|trouble| failed(stage.name().as_str(), &trouble))?,
        };
        let Some(PageLookup { known, stale, .. }) = found else { continue };
        any_stale = any_stale.max(stale);
        heard.push((stage, known));
    }
    Ok((heard, any_stale))
}

/// Asks all upstreams for the project again, for a sender who may read it.
///
/// # Errors
/// The first upstream that has not answered, and why, even if what was known of it still counts.
pub(crate) async fn refresh(
    mirrors: &Arc<Mirrors>,
    order: &ResolutionOrder<'_>,
    project: &ProjectName,
) -> Result<(), HttpError> {
    let mut unanswered = Ok(());
    for stage in order.mirrors_of(project.as_str()).asked {
        let Some(mirror) = mirrors.of(stage) else { continue };
        let found = mirrors.project(&mirror, project, true).await;
        let error = match &found {
            Ok(PageLookup { trouble: None, .. }) => continue,
            Ok(PageLookup { known, trouble: Some(trouble), .. }) => {
                let known_at = httpdate::fmt_http_date(known.confirmed_at());
                let kept = match known.page() {
                    Some(_) => "the last good page stays",
                    None => "it is still taken to have no such project",
                };
                let stage = stage.name();
                let text = format!(
                    "the mirror {stage} has no usable answer from its upstream: {trouble}; {kept}, as confirmed {known_at}"
                );
                failed_with(text, trouble)
            }
            Err(trouble) => failed(stage.name().as_str(), trouble),
        };
        unanswered = unanswered.and(Err(error));
    }
    unanswered
}
