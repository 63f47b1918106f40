//! The part of a browser that tests of forms need: it keeps cookies, asks for pages, and sends the forms that it was shown.

use std::collections::BTreeMap;

use crate::client::{Client, Response};
use crate::server::ROOT_PASSWORD;

/// A browser with its cookies.
#[derive(Clone, Debug)]
pub(crate) struct Browser {
    pub(crate) client: Client,
    pub(crate) cookies: BTreeMap<String, String>,
}

pub(crate) const ACCEPT: (&str, &str) =
    ("Accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8");

/// The fields of a form, in its order.
pub(crate) type Fields = Vec<(String, String)>;

/// The body of a form.
pub(crate) fn encoded(fields: &[(String, String)]) -> String {
    let mut body = form_urlencoded::Serializer::new(String::new());
    body.extend_pairs(fields).finish()
}

pub(crate) fn unescaped(text: &str) -> String {
    let text = text.replace("&#34;", "\"").replace("&#39;", "'");
    text.replace("&#60;", "<").replace("&#62;", ">").replace("&#38;", "&").replace("&amp;", "&")
}

/// The value of an attribute of a tag.
pub(crate) fn attribute(tag: &str, name: &str) -> Option<String> {
    let start = tag.find(&format!(" {name}=\""))? + name.len() + 3;
    Some(unescaped(tag[start..].split('"').next()?))
}

/// The fields of the form with this label, as the page fills it in, and where it goes.
#[track_caller]
pub(crate) fn form(page: &str, label: &str) -> (String, Fields) {
    let at = page
        .find(&format!("aria-label=\"{label}\""))
        .unwrap_or_else(|| panic!("no form `{label}`: {page}"));
    let start = page[..at].rfind("<form").expect("a form");
    let form = &page[start..start + page[start..].find("</form>").expect("its end")];
    let action = attribute(form, "action").expect("an action");
    let mut fields = Fields::new();
    for tag in form.split('<').skip(1) {
        let (tag, rest) = tag.split_once('>').expect("a tag");
        let name = attribute(tag, "name");
        let is_unchecked = tag.contains("type=\"checkbox\"") && !tag.ends_with(" checked");
        if let Some(name) = name.filter(|_| tag.starts_with("input") && !is_unchecked) {
            fields.push((name, attribute(tag, "value").unwrap_or_default()));
        } else if let Some(name) = attribute(tag, "name").filter(|_| tag.starts_with("textarea")) {
            // A browser leaves the first end of line out.
            let text = unescaped(rest);
            fields.push((name, text.strip_prefix('\n').unwrap_or(&text).to_owned()));
        }
    }
    (action, fields)
}

/// The value of a field of the form with this label.
#[track_caller]
pub(crate) fn field(page: &str, label: &str, name: &str) -> String {
    let found = form(page, label).1.into_iter().find(|(found, _)| found == name);
    found.unwrap_or_else(|| panic!("no field `{name}`: {page}")).1
}

/// [`form`] with other values in some of its fields.
#[track_caller]
pub(crate) fn filled(page: &str, label: &str, values: &[(&str, &str)]) -> (String, Fields) {
    let (action, mut fields) = form(page, label);
    for (name, value) in values {
        match fields.iter_mut().find(|(found, _)| found == name) {
            Some((_, old)) => *old = (*value).to_owned(),
            // A box that is ticked, or the button that is pressed.
            None => fields.push(((*name).to_owned(), (*value).to_owned())),
        }
    }
    (action, fields)
}

impl Browser {
    pub(crate) fn new(client: Client) -> Browser {
        Browser { client, cookies: BTreeMap::new() }
    }

    /// A browser in which this user has logged in.
    #[track_caller]
    pub(crate) fn of(client: Client, name: &str, password: &str) -> Browser {
        let mut browser = Browser::new(client);
        browser.log_in(name, password).expect(303);
        browser
    }

    /// A browser in which `root` has logged in.
    #[track_caller]
    pub(crate) fn root(client: Client) -> Browser {
        Browser::of(client, "root", ROOT_PASSWORD)
    }

    #[track_caller]
    pub(crate) fn log_in(&mut self, name: &str, password: &str) -> Response {
        let page = self.get("/+account/login").text();
        self.submit(&page, "Log in", &[("name", name), ("password", password)])
    }

    pub(crate) fn cookie(&self) -> String {
        let pairs = self.cookies.iter().map(|(name, value)| format!("{name}={value}"));
        pairs.collect::<Vec<_>>().join("; ")
    }

    #[track_caller]
    pub(crate) fn send(
        &mut self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Response {
        let cookie = self.cookie();
        let mut all = vec![ACCEPT];
        if !cookie.is_empty() {
            all.push(("Cookie", &cookie));
        }
        all.extend(headers);
        let response = self.client.send(method, target, &all, body);
        for (name, value) in &response.headers {
            if name != "set-cookie" {
                continue;
            }
            let (pair, about) = value.split_once(';').expect("attributes");
            let (name, value) = pair.split_once('=').expect("a value");
            match about.contains("Max-Age=0;") {
                true => _ = self.cookies.remove(name),
                false => _ = self.cookies.insert(name.to_owned(), value.to_owned()),
            }
        }
        response
    }

    #[track_caller]
    pub(crate) fn get(&mut self, target: &str) -> Response {
        self.send("GET", target, &[], b"")
    }

    /// Sends this body as a form of a page of this server.
    #[track_caller]
    pub(crate) fn post(&mut self, target: &str, body: &str) -> Response {
        let origin = format!("http://{}", self.client.address);
        let headers =
            [("Content-Type", "application/x-www-form-urlencoded"), ("Origin", origin.as_str())];
        self.send("POST", target, &headers, body.as_bytes())
    }

    /// Sends the form with this label of a page, with other values in some of its fields.
    #[track_caller]
    pub(crate) fn submit(&mut self, page: &str, label: &str, values: &[(&str, &str)]) -> Response {
        let (action, fields) = filled(page, label, values);
        self.post(&action, &encoded(&fields))
    }

    /// Gets a page and sends its form with this label, as [`Browser::submit`] does.
    #[track_caller]
    pub(crate) fn fill(&mut self, target: &str, label: &str, values: &[(&str, &str)]) -> Response {
        let page = self.get(target).expect(200).text();
        self.submit(&page, label, values)
    }

    /// Sends the form with this label of a page as one with a file.
    #[track_caller]
    pub(crate) fn submit_file(
        &mut self,
        (page, label): (&str, &str),
        values: &[(&str, &str)],
        file: Option<(&str, &[u8])>,
    ) -> Response {
        let (action, mut fields) = filled(page, label, values);
        fields.retain(|(name, _)| name != "file");
        let mut body = Vec::new();
        for (name, value) in fields {
            let part = format!(
                "--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n"
            );
            body.extend_from_slice(part.as_bytes());
        }
        if let Some((filename, bytes)) = file {
            let head = format!(
                "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{filename}\"\r\n\
                 Content-Type: application/octet-stream\r\n\r\n"
            );
            body.extend_from_slice(head.as_bytes());
            body.extend_from_slice(bytes);
            body.extend_from_slice(b"\r\n");
        }
        body.extend_from_slice(b"--b--\r\n");
        let origin = format!("http://{}", self.client.address);
        let headers =
            [("Content-Type", "multipart/form-data; boundary=b"), ("Origin", origin.as_str())];
        self.send("POST", &action, &headers, &body)
    }
}
