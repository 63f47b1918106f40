//! The output for each format, and for texts that try to be more than a text.

use html5gum::{Token, Tokenizer};

use super::*;

const FORMATS: [Format; 4] =
    [Format::Markdown, Format::RestructuredText, Format::Html, Format::Plain];

/// Attacks, one in each paragraph after the first.
fn attacks() -> Vec<String> {
    let text = include_str!("../../../testdata/attacks.txt");
    let mut attacks: Vec<String> = text.split("\n\n").skip(1).map(str::to_owned).collect();
    assert!(attacks.len() > 150, "the attacks are read");
    // Attacks that hide from a search in the text, and all of them at once.
    attacks.push("<script>alert(1)</script>".replace('s', "\u{17f}"));
    attacks.push("<img src=x\0 onerror\0=alert(1)>".to_owned());
    attacks.push("<scr\0ipt>alert(1)</script>".to_owned());
    attacks.push(attacks.join("\n\n"));
    attacks.push(attacks.concat());
    attacks
}

/// Classes that only style a text.
const OUR_CLASSES: [&str; 16] = [
    "missing",
    "wide",
    "right",
    "center",
    "toc",
    "footnote",
    "alert-note",
    "alert-tip",
    "alert-important",
    "alert-warning",
    "alert-caution",
    "hl-word",
    "hl-string",
    "hl-comment",
    "hl-value",
    "hl-name",
];

/// Whether a page may have the elements and attributes, as a browser's tokenizer sees them.
#[track_caller]
fn check_harmless(html: &str, what: &str) {
    let mut open: Vec<String> = Vec::new();
    for token in Tokenizer::new(html) {
        match token {
            Ok(Token::StartTag(tag)) => {
                let name = String::from_utf8(tag.name.to_vec()).expect("text");
                let is_math = clean::MATH_TAGS.contains(&name.as_str());
                let is_known = clean::TAGS.contains(&name.as_str())
                    || ["tfoot", "wbr"].contains(&name.as_str())
                    || is_math;
                assert!(is_known, "<{name}> of {what}: {html}");
                for (key, value) in &tag.attributes {
                    let key = std::str::from_utf8(key).expect("text");
                    let value = std::str::from_utf8(value).expect("text");
                    let is_fine = match key {
                        "href" => ["http://", "https://", "mailto:", "#u-", "/article/"]
                            .iter()
                            .any(|start| value.starts_with(start)),
                        "src" => value.starts_with("/article/"),
                        "id" => value.starts_with(ID_PREFIX),
                        "rel" => value == "nofollow noopener",
                        "class" if is_math => ["left", "right"].contains(&value),
                        "class" => OUR_CLASSES.contains(&value),
                        "alt" | "aria-label" => true,
                        "loading" => value == "lazy",
                        "tabindex" => value == "0",
                        "role" => value == "group",
                        "start" | "colspan" | "rowspan" => value.parse::<u16>().is_ok(),
                        key => is_math && clean::MATH_ATTRIBUTES.contains(&key),
                    };
                    assert!(is_fine, "{key}={value:?} of {what}: {html}");
                }
                if !["br", "hr", "img", "wbr"].contains(&name.as_str()) {
                    open.push(name);
                }
            }
            Ok(Token::EndTag(tag)) => {
                let name = String::from_utf8(tag.name.to_vec()).expect("text");
                assert_eq!(open.pop().as_ref(), Some(&name), "{what}: {html}");
            }
            Ok(Token::String(_)) => {}
            other => panic!("{other:?} of {what}: {html}"),
        }
    }
    assert!(open.is_empty(), "{open:?} of {what}: {html}");
}

fn resolve(link: &str) -> Option<Target> {
    Some(match link {
        "missing" => Target::Missing("/article/missing".to_owned()),
        "picture.png" => Target::Picture("/article/picture.png".to_owned()),
        "nowhere" => return None,
        other => Target::Page(format!("/article/{other}")),
    })
}

fn rendered(text: &str, format: Format) -> RenderedText {
    let options = Options { resolve: &resolve, is_article: true, ..Options::default() };
    render(text, format, &options)
}

#[track_caller]
fn check(format: Format, text: &str, expected: &str) {
    let html = rendered(text, format).html;
    assert_eq!(html.trim(), expected, "{text}");
    check_harmless(&html, text);
}

#[track_caller]
fn check_markdown(text: &str, expected: &str) {
    check(Format::Markdown, text, expected);
}

#[track_caller]
fn check_html(text: &str, expected: &str) {
    check(Format::Html, text, expected);
}

#[track_caller]
fn check_rst(text: &str, expected: &str) {
    let html = rendered(text, Format::RestructuredText).html;
    assert_eq!(html.replace('\n', " ").trim(), expected, "{text}");
    check_harmless(&html, text);
}

#[test]
fn attacks_become_harmless() {
    for attack in attacks() {
        for format in FORMATS {
            let html = rendered(&attack, format).html;
            check_harmless(&html, &attack);
            // A browser reads it as the sanitiser did: sanitising it again changes nothing.
            assert_eq!(clean::clean(&html, html.contains("<math")), html, "{format:?} {attack}");
        }
    }
}

/// The sanitiser is safe alone, too: the steps before it are for speed and form.
#[test]
fn attacks_do_not_pass_the_sanitiser_alone() {
    for attack in attacks() {
        for has_formulas in [false, true] {
            let html = clean::clean(&attack, has_formulas).to_ascii_lowercase();
            for token in Tokenizer::new(&html) {
                if let Ok(Token::StartTag(tag)) = token {
                    assert!(tag.attributes.keys().all(|key| !key.starts_with(b"on")), "{html}");
                    assert!(tag.name != b"script", "{html}");
                    let runs = |value: &[u8]| value.starts_with(b"javascript:");
                    assert!(!tag.attributes.values().any(|value| runs(value)), "{html}");
                }
            }
        }
    }
}

#[test]
fn markdown_is_what_its_readers_know() {
    check_markdown(
        "a *b* **c** `<d>`",
        "<p>a <em>b</em> <strong>c</strong> <code>&lt;d&gt;</code></p>",
    );
    check_markdown(
        "[x](https://e.example/a?b=1&c=2)",
        "<p><a href=\"https://e.example/a?b=1&amp;c=2\" rel=\"nofollow noopener\">x</a></p>",
    );
    check_markdown(
        "see https://e.example/a_(b). Yes",
        "<p>see <a href=\"https://e.example/a_(b)\" rel=\"nofollow noopener\">https://e.example/a_(b)</a>. Yes</p>",
    );
    check_markdown("`https://e.example/`", "<p><code>https://e.example/</code></p>");
    check_markdown("- [x] done\n- [ ] open", "<ul><li>☑ \ndone</li><li>☐ \nopen</li></ul>");
    check_markdown(
        "| a | b |\n|---|--:|\n| 1 | 2 |",
        "<div class=\"wide\" tabindex=\"0\" role=\"group\" aria-label=\"Table 1\"><table><thead><tr><th>a</th>\
         <th class=\"right\">b</th></tr></thead><tbody><tr><td>1</td><td class=\"right\">2</td></tr></tbody></table></div>",
    );
}

#[test]
fn markdown_is_what_githubs_readers_know() {
    for (mark, title) in [
        ("NOTE", "Note"),
        ("TIP", "Tip"),
        ("IMPORTANT", "Important"),
        ("WARNING", "Warning"),
        ("caution", "Caution"),
    ] {
        check_markdown(
            &format!("> [!{mark}]\n> *Do* this."),
            &format!(
                "<blockquote class=\"alert-{}\"><p><strong>{title}</strong></p>\n<p><em>Do</em> this.</p>\n</blockquote>",
                title.to_lowercase()
            ),
        );
    }
    check_markdown(
        ":rocket: :+1: :heavy_check_mark: 10:30:45 :nonsense:rocket: `:tada:` a::b",
        "<p>🚀 👍 ✔️ 10:30:45 :nonsense🚀 <code>:tada:</code> a::b</p>",
    );
    check_markdown("    :tada:", "<pre><code>:tada:</code></pre>");
    let link =
        |url: &str, text: &str| format!("<a href=\"{url}\" rel=\"nofollow noopener\">{text}</a>");
    check_markdown(
        "(www.e.example/a_b), a.b@e.example. www. www.x awww.e.example x@y a@b_c.",
        &format!(
            "<p>({}), {}. www. {} awww.e.example x@y a@b_c.</p>",
            link("http://www.e.example/a_b", "www.e.example/a_b"),
            link("mailto:a.b@e.example", "a.b@e.example"),
            link("http://www.x/", "www.x"),
        ),
    );
}

#[test]
fn pictures_that_are_links_have_a_name_each() {
    let link = |url: &str, text: &str| {
        format!("<a href=\"https://e.example/{url}\" rel=\"nofollow noopener\">{text}</a>")
    };
    let (a, b) = (link("a", "A"), link("b", "B"));
    check_markdown(
        "[![A](https://e.example/a.svg)](https://e.example/a)[![B](https://e.example/b.svg)](https://e.example/b)text",
        &format!("<p>{a} {b} text</p>"),
    );
    check_html(
        "<a href=https://e.example/a>\n  <img src=https://e.example/a.svg alt=A>\n</a>\n<a href=https://e.example/b><img alt=B></a>",
        &format!("{a}\n\n{b}"),
    );
    let image = |url: &str| link(url, "Image");
    check_html(
        "<a href=https://e.example/a><img src=https://e.example/a.svg></a><a href=https://e.example/b><b><img src=https://e.example/b.svg alt=' '></b></a>",
        &format!("{} {}", image("a"), link("b", "<b></b>Image")),
    );
    check_html(
        "<a href=https://e.example/a><img title=T></a> <a href=https://e.example/b></a>",
        &format!("{} {}", link("a", "T"), link("b", "https://e.example/b")),
    );
    check_html(
        "<a href=https://e.example/a><img src=picture.png></a>",
        &link("a", "<img src=\"/article/picture.png\" alt=\"Image\" loading=\"lazy\">"),
    );
    check_rst(
        ".. image:: https://e.example/a.svg\n   :target: https://e.example/a\n",
        &format!("<p>{}</p>", image("a")),
    );
    // Badges stay in a row.
    check_rst(
        ".. image:: https://e.example/a\n\n.. image:: https://e.example/b\n   :alt: B\n\nText.\n\n.. image:: https://e.example/a\n",
        &format!("<p>{} {}</p> <p>Text.</p> <p>{}</p>", image("a"), link("b", "B"), image("a")),
    );
}

/// A heading has the `id` of its text, unless something else in the text was given it.
#[test]
fn footnotes_and_anchors_do_not_lead_to_headings() {
    check_markdown(
        "Text[^apple] and [it](#apple).\n\n## Apple\n\n## fn 1\n\n[^apple]: The note.\n",
        "<p>Text<sup><a href=\"#u-fn-1\" id=\"u-fn-1-r\" rel=\"nofollow noopener\">1</a></sup> and <a href=\"#u-apple\" rel=\"nofollow noopener\">it</a>.</p>\n<h2 id=\"u-apple\">Apple</h2>\n<h3 id=\"u-fn-1-1\">fn 1</h3>\n<div id=\"u-fn-1\" class=\"footnote\"><sup>1</sup> \n<p>The note.</p>\n<a href=\"#u-fn-1-r\" rel=\"nofollow noopener\">↩</a></div>",
    );
    check_markdown(
        "Text[^a].\n\n<p id=fn-1>x</p>\n\n[^a]: The note.\n",
        "<p>Text<sup><a href=\"#u-ffn-1\" id=\"u-ffn-1-r\" rel=\"nofollow noopener\">1</a></sup>.</p>\n<p id=\"u-fn-1\">x</p>\n<div id=\"u-ffn-1\" class=\"footnote\"><sup>1</sup> \n<p>The note.</p>\n<a href=\"#u-ffn-1-r\" rel=\"nofollow noopener\">↩</a></div>",
    );
    check_html(
        "<svg id=b></svg><h1>A</h1><h1>B</h1><p id=a>x</p>",
        "<h2 id=\"u-a-1\">A</h2><h2 id=\"u-b\">B</h2><p id=\"u-a\">x</p>",
    );
}

/// Only the first place that refers to a note is led back to, and only if it stands before the note.
#[test]
fn footnotes_lead_back() {
    check_markdown(
        "a[^x] b[^x] c[^y]\n\n[^x]: X\n\n[^y]: Y\n",
        "<p>a<sup><a href=\"#u-fn-1\" id=\"u-fn-1-r\" rel=\"nofollow noopener\">1</a></sup> b<sup><a href=\"#u-fn-1\" rel=\"nofollow noopener\">1</a></sup> c<sup><a href=\"#u-fn-2\" id=\"u-fn-2-r\" rel=\"nofollow noopener\">2</a></sup></p>\n<div id=\"u-fn-1\" class=\"footnote\"><sup>1</sup> \n<p>X</p>\n<a href=\"#u-fn-1-r\" rel=\"nofollow noopener\">↩</a></div>\n<div id=\"u-fn-2\" class=\"footnote\"><sup>2</sup> \n<p>Y</p>\n<a href=\"#u-fn-2-r\" rel=\"nofollow noopener\">↩</a></div>",
    );
    check_markdown(
        "[^x]: X\n\na[^x]\n",
        "<div id=\"u-fn-1\" class=\"footnote\"><sup>1</sup> \n<p>X</p>\n</div>\n<p>a<sup><a href=\"#u-fn-1\" id=\"u-fn-1-r\" rel=\"nofollow noopener\">1</a></sup></p>",
    );
}

#[test]
fn a_table_of_contents_is_where_the_text_says() {
    let link =
        |id: &str, text: &str| format!("<a href=\"#u-{id}\" rel=\"nofollow noopener\">{text}</a>");
    let text = "y\n\n[TOC]\n\n# A\n\n## `x`&lt;\n\n### C\n\n# D\n\n[TOC]\n";
    let found = rendered(text, Format::Markdown).html;
    let (a, b, c, d) = (link("a", "A"), link("x", "x&lt;"), link("c", "C"), link("d", "D"));
    let toc = format!(
        "<div class=\"toc\"><ul><li>{a}<ul><li>{b}<ul><li>{c}</li></ul></li></ul></li><li>{d}</li></ul></div>"
    );
    assert!(found.starts_with(&format!("<p>y</p>\n{toc}\n<h2 id=\"u-a\">")), "{found}");
    assert_eq!(found.matches("class=\"toc\"").count(), 1, "{found}");
    // Elsewhere it is text.
    for (text, expected) in [
        ("a [TOC]", "<p>a [TOC]</p>"),
        ("`[TOC]`", "<p><code>[TOC]</code></p>"),
        ("[TOC] a", "<p>[TOC] a</p>"),
        ("[TOC]\nb", "<p>[TOC]\nb</p>"),
    ] {
        check_markdown(text, expected);
    }
    let plain = render("# A\n\n[TOC]", Format::Markdown, &Options::default());
    assert_eq!(plain.html, "<h2 id=\"u-a\">A</h2>\n<p>[TOC]</p>\n");
    assert_eq!(rendered("- [TOC]\n", Format::Markdown).html.matches("<a").count(), 0);
    assert_eq!(rendered("[TOC]", Format::Markdown).html.trim(), "<div class=\"toc\"></div>");
}

#[test]
fn lists_of_definitions() {
    check_markdown(
        "Term\n: What it *is*\n: More\n\nOther\n: x",
        "<dl><dt>Term</dt><dd>What it <em>is</em></dd><dd>More</dd><dt>Other</dt><dd>x</dd></dl>",
    );
    let plain = render("Term\n: x", Format::Markdown, &Options::default());
    assert_eq!(plain.html, "<p>Term\n: x</p>\n");
}

/// Classes of strangers are dropped, except those that our own steps write.
#[test]
fn classes_are_ours() {
    check_html(
        "<div class='hero footnote'>a</div><div class=wide>b</div>",
        "<div>a</div><div>b</div>",
    );
    check_html(
        "<p class=footnote>a</p><blockquote class=card>b</blockquote>",
        "<p>a</p><blockquote>b</blockquote>",
    );
    check_html("<div class=footnote>a</div>", "<div class=\"footnote\">a</div>");
}

/// What is repeated up to the longest text takes time in proportion to it, or is cut: a step that took quadratic time would take
/// minutes here.
#[test]
fn long_texts_of_documentation_are_rendered() {
    let parts = [
        "[^a]",
        "[^a]: x\n\n",
        "a[^1]\n\n[^1]: [^1]\n\n",
        "> [!NOTE]\n",
        "> ",
        ">> [!TIP]\n> x\n",
        "[TOC]\n\n",
        "a\n: b\n\n",
        ": ",
        "a\n: ",
        "  : a\n",
        "- [ ] ",
        "# [TOC]\n\n",
        "---\na: b\n",
        "[[",
        "]]",
        "[TOC]\n: x\n\n",
        "| a ",
        "|-|\n",
        "|a|b|\n|-|-|\n",
    ];
    for part in parts {
        let text = part.repeat(INPUT_BYTES_MAX / part.len());
        let found = rendered(&text, Format::Markdown);
        assert!(found.html.len() <= 2 * WRITTEN_BYTES_MAX, "{part:?}: {}", found.html.len());
        check_harmless(&found.html, part);
    }
    let many: String = (0..30_000).map(|at| format!("[^{at}]\n\n[^{at}]: x\n\n")).collect();
    check_harmless(&rendered(&many, Format::Markdown).html, "notes");
}

#[test]
fn a_byte_order_mark_is_no_text() {
    check_markdown("\u{feff}# Head", "<h2 id=\"u-head\">Head</h2>");
    check_markdown("\u{feff}---\ntitle: x\n---\n\n# Head", "<h2 id=\"u-head\">Head</h2>");
    check_rst("\u{feff}Head\n====", "<h2 id=\"u-head\">Head</h2>");
    check(Format::Plain, "\u{feff}plain", "<pre>plain</pre>");
}

#[test]
fn wiki_links_lead_to_exact_names() {
    let resolve = |link: &str| {
        let there = ["C", "C%23", "C%23%23x"];
        let name = link.split(['#', '?']).next().unwrap_or_default();
        let place = format!("/article/{link}");
        Some(if there.contains(&name) { Target::Page(place) } else { Target::Missing(place) })
    };
    let options = Options { resolve: &resolve, is_article: true, ..Options::default() };
    let (there, missing) = (("", ""), (" class=\"missing\"", "<sup>missing</sup>"));
    for (name, place, (class, mark)) in [
        ("C", "/article/C", there),
        ("C#", "/article/C%23", there),
        ("C#part", "/article/C#part", there),
        ("C##x", "/article/C%23%23x", there),
        ("Why?", "/article/Why%3F", missing),
        ("D#part", "/article/D#part", missing),
        ("Help: x", "/article/Help%3A%20x", missing),
        ("https://e.example/#x", "https://e.example/#x", there),
        ("#part", "#u-part", there),
    ] {
        let found = render(&format!("[[{name}]]"), Format::Markdown, &options).html;
        let link = format!("<a href=\"{place}\"{class} rel=\"nofollow noopener\">{name}</a>");
        assert_eq!(found, format!("<p>{link}{mark}</p>\n"));
    }
    assert_eq!(links("[[C#]] [[a]]", Format::Markdown, 9), ["C%23", "C#", "a"]);
}

#[test]
fn links_lead_where_they_may() {
    let nofollow = "rel=\"nofollow noopener\"";
    check_markdown("[a](javascript:x)", "<p>a</p>");
    check_markdown("[a](ftp://e.example/)", "<p>a</p>");
    check_markdown("[a](nowhere)", "<p>a</p>");
    check_markdown("[a](b)", &format!("<p><a href=\"/article/b\" {nofollow}>a</a></p>"));
    check_markdown("[[b]]", &format!("<p><a href=\"/article/b\" {nofollow}>b</a></p>"));
    check_markdown(
        "![a](missing)",
        &format!(
            "<p><a href=\"/article/missing\" class=\"missing\" {nofollow}>a</a><sup>missing</sup></p>"
        ),
    );
    check_markdown(
        "[a](missing)",
        &format!(
            "<p><a href=\"/article/missing\" class=\"missing\" {nofollow}>a</a><sup>missing</sup></p>"
        ),
    );
    check_markdown(
        "[a](#Some%20Place)",
        &format!("<p><a href=\"#u-someplace\" {nofollow}>a</a></p>")
            .replace("someplace", "some-place"),
    );
    check_markdown(
        "[a](//e.example/x)",
        &format!("<p><a href=\"https://e.example/x\" {nofollow}>a</a></p>"),
    );
    // A link without a text would be invisible.
    check_markdown(
        "[](https://e.example/)",
        &format!("<p><a href=\"https://e.example/\" {nofollow}>https://e.example/</a></p>"),
    );
}

#[test]
fn pictures_of_other_hosts_are_links() {
    let nofollow = "rel=\"nofollow noopener\"";
    check_markdown(
        "![a](https://e.example/a.png)",
        &format!("<p><a href=\"https://e.example/a.png\" {nofollow}>a</a></p>"),
    );
    check_markdown(
        "[![badge](https://e.example/a.png)](https://f.example/)",
        &format!("<p><a href=\"https://f.example/\" {nofollow}>badge</a></p>"),
    );
    check_markdown(
        "![a](picture.png)",
        "<p><img src=\"/article/picture.png\" alt=\"a\" loading=\"lazy\"></p>",
    );
    check_markdown("![a](data:image/png;base64,AAAA)", "<p>a</p>");
}

#[test]
fn headings_fit_the_page_and_make_a_table_of_contents() {
    let found = rendered("# One\n\n### Deep\n\n## One\n\n# <b></b>\n", Format::Markdown);
    let contents: Vec<(u8, &str, &str)> =
        found.contents.iter().map(|it| (it.level, it.id.as_str(), it.text.as_str())).collect();
    assert_eq!(contents, [(2, "u-one", "One"), (3, "u-deep", "Deep"), (3, "u-one-1", "One")]);
    assert_eq!(
        found.html,
        "<h2 id=\"u-one\">One</h2>\n<h3 id=\"u-deep\">Deep</h3>\n<h3 id=\"u-one-1\">One</h3>\n<b></b>\n"
    );
    let options = Options { heading_level: 4, ..Options::default() };
    let found =
        render("Title\n=====\n\nSub\n---\n\nSub2\n~~~~\n", Format::RestructuredText, &options);
    let levels: Vec<u8> = found.contents.iter().map(|heading| heading.level).collect();
    assert_eq!(levels, [4, 5, 6]);
    let options = Options { takes_title: true, ..Options::default() };
    let found = render("# The *title*\n\n## Part\n\n### Deep\n", Format::Markdown, &options);
    assert_eq!(found.title.as_deref(), Some("The title"));
    let levels: Vec<u8> = found.contents.iter().map(|heading| heading.level).collect();
    assert_eq!((levels, found.html.contains("title")), (vec![2, 3], false), "{}", found.html);
    let many = "# x\n".repeat(2 * CONTENTS_MAX);
    assert_eq!(rendered(&many, Format::Markdown).contents.len(), CONTENTS_MAX);
}

#[test]
fn html_is_closed_in_order() {
    check_html("<p>a<p>b", "<p>a</p><p>b</p>");
    check_html("<b><p>a</b>b", "<b><p>a</p></b>b");
    check_html("a</p></div>b", "ab");
    check_html("<ul>a<li>b</ul>", "<ul><li>a</li><li>b</li></ul>");
    check_html("<li>a", "a");
    check_html("<dl><dd>a</dl>", "<dl><dt></dt><dd>a</dd></dl>");
    check_html("<h1>a<h2>b", "<h2 id=\"u-a\">a</h2><h3 id=\"u-b\">b</h3>");
    check_html("<p>a<div>b</div>c", "<p>a</p><div>b</div>c");
    check_html("<details><p>a</details>", "<details><p>a</p></details>");
    check_html(
        "<details><summary></summary>a</details>",
        "<details><summary>Details</summary>a</details>",
    );
    check_html("<td>a</td>", "a");
    let wide =
        "<div class=\"wide\" tabindex=\"0\" role=\"group\" aria-label=\"Table 1\"><table><tbody>";
    check_html(
        "<table>a<td>b<tr><th><th>c</table>d",
        &format!(
            "{wide}<tr><td>a</td><td>b</td></tr><tr><td></td><th>c</th></tr></tbody></table></div>d"
        ),
    );
    check_html("<pre>\n\n a\n</pre>", "<pre> a\n</pre>");
    check_html("x<script>y</script>z<!-- c -->", "xz");
}

#[test]
fn restructured_text_is_what_its_writers_mean() {
    let nofollow = "rel=\"nofollow noopener\"";
    check_rst(
        "Title\n=====\n\nA *b* **c** ``d`` `e`.\n",
        "<h2 id=\"u-title\">Title</h2><p>A <em>b</em> <strong>c</strong> <code>d</code> <cite>e</cite>.</p>",
    );
    check_rst(
        "`Text <https://e.example/>`_ and named_ and `two words`_.\n\n.. _named: https://e.example/n\n.. _two words: https://e.example/t\n",
        &format!(
            "<p><a href=\"https://e.example/\" {nofollow}>Text</a> and <a href=\"https://e.example/n\" {nofollow}>named</a> \
             and <a href=\"https://e.example/t\" {nofollow}>two words</a>.</p>"
        ),
    );
    check_rst("Code::\n\n  a < b\n    c\n\nEnd", "<p>Code:</p> <pre>a &lt; b   c </pre><p>End</p>");
    check_rst(
        "- a\n- b\n\n  c\n\n1. d\n",
        "<ul><li><p>a</p> </li><li><p>b</p> <p>c</p> </li></ul><ol><li><p>d</p> </li></ol>",
    );
    check_rst(
        ":Name: value\n:Other: more",
        "<dl><dt>Name</dt><dd><p>value</p> </dd><dt>Other</dt><dd><p>more</p> </dd></dl>",
    );
    check_rst("term\n  meaning\n", "<dl><dt>term</dt><dd><p>meaning</p> </dd></dl>");
    check_rst(
        ".. code-block:: python\n   :linenos:\n\n   x = 1\n",
        "<pre><code>x = <span class=\"hl-value\">1</span> </code></pre>",
    );
    check_rst(".. code-block:: none\n\n   x = 1\n", "<pre><code>x = 1 </code></pre>");
    check_rst(".. code::\n\n   x = 1\n", "<pre>x = 1 </pre>");
    check_rst(
        ".. note:: Mind *this*.\n",
        "<blockquote><p><strong>Note</strong> Mind <em>this</em>.</p></blockquote>",
    );
    check_rst(".. a comment\n   of two lines\n\ntext", "<p>text</p>");
    check_rst(
        ".. |b| image:: https://e.example/b.svg\n   :target: https://e.example/\n   :alt: Badge\n\n|b|",
        &format!("<p><a href=\"https://e.example/\" {nofollow}>Badge</a></p>"),
    );
    check_rst(
        "== ==\na  b\n== ==\n1  2\n== ==\n",
        "<div class=\"wide\" tabindex=\"0\" role=\"group\" aria-label=\"Table 1\"><table><tbody><tr><th>a</th><th>b</th></tr>\
         <tr><td>1</td><td>2</td></tr></tbody></table></div>",
    );
    check_rst("snake_case_name and 2*3*4 and a_\n", "<p>snake_case_name and 2*3*4 and a_</p>");
    check_rst(":class:`~a.B` and :sup:`2`", "<p><code>a.B</code> and <sup>2</sup></p>");
    check_rst(".. unknown:: x\n\n   y", "<pre>.. unknown:: x     y </pre>");
}

/// The visible text, with a broken bar where an element begins or ends, and the links.
fn shown(text: &str, format: Format) -> (String, Vec<String>) {
    let found = rendered(text, format);
    check_harmless(&found.html, text);
    let (mut shown, mut links) = (String::new(), Vec::new());
    for token in Tokenizer::new(&found.html) {
        match token {
            Ok(Token::StartTag(tag)) => {
                let inline = ["a", "code", "em", "strong", "cite", "sup"];
                if !inline.iter().any(|name| name.as_bytes() == &tag.name[..]) {
                    shown.push('¦');
                }
                let href = tag.attributes.iter().find(|(key, _)| key.as_slice() == b"href");
                let href = href.map(|(_, value)| String::from_utf8_lossy(value).into_owned());
                links.extend(href);
            }
            Ok(Token::String(text)) => shown.push_str(std::str::from_utf8(&text).expect("text")),
            _ => {}
        }
    }
    let parts = shown.split('¦').map(|part| part.split_whitespace().collect::<Vec<_>>().join(" "));
    (parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join("¦"), links)
}

#[track_caller]
fn check_shown(text: &str, expected: &str, links: &[&str]) {
    let found = shown(text, Format::RestructuredText);
    assert_eq!(
        found,
        (expected.to_owned(), links.iter().map(|it| (*it).to_owned()).collect()),
        "{text}"
    );
}

#[test]
fn tables_of_restructured_text_have_cells() {
    check_rst(
        "+-------+-----+\n| a     | b   |\n+=======+=====+\n| **x** | 1   |\n+-------+-----+\n",
        "<div class=\"wide\" tabindex=\"0\" role=\"group\" aria-label=\"Table 1\"><table><tbody><tr><th>a</th><th>b</th></tr>\
         <tr><td><strong>x</strong></td><td>1</td></tr></tbody></table></div>",
    );
    check_rst(
        "+---+---+\n| a | b |\n|   +---+\n|   | c |\n+---+---+\n| - d   |\n+-------+\n",
        "<div class=\"wide\" tabindex=\"0\" role=\"group\" aria-label=\"Table 1\"><table><tbody><tr><td rowspan=\"2\">a</td>\
         <td>b</td></tr><tr><td>c</td></tr><tr><td colspan=\"2\"><ul><li><p>d</p> </li></ul></td></tr></tbody></table></div>",
    );
    check_shown("+----+---+\n| 日 | b |\n+----+---+\n", "日¦b", &[]);
    check_shown("+--+\n| a|x\n+--+\n", "+--+ | a|x +--+", &[]);
    check_shown(
        "=====  =====\nover both\n------------\n a      b\n=====  =====\n1      one\n       line\n\n2      ``x``\n=====  =====\n",
        "over both¦a¦b¦1¦one line¦2¦x",
        &[],
    );
    check_shown(
        "Before.\n\n.. list-table:: Title\n   :header-rows: 1\n\n   * - A\n     - B\n   * - |logo|\n     - `link <https://e.example/x>`_.\n\n\
         .. |logo| image:: https://e.example/logo.png\n   :alt: Logo\n\nAfter.",
        "Before.¦Title¦A¦B¦Logo¦link.¦After.",
        &["https://e.example/logo.png", "https://e.example/x"],
    );
    check_shown(
        ".. csv-table::\n   :header: \"a\", \"b, c\"\n\n   \"1\", \"say \"\"x\"\"\"\n   2, `l <https://e.example/>`_\n",
        "a¦b, c¦1¦say \"x\"¦2¦l",
        &["https://e.example/"],
    );
    check_shown(".. csv-table::\n   :file: x.csv\n", ".. csv-table:: :file: x.csv", &[]);
}

#[test]
fn names_of_restructured_text_lead_to_their_targets() {
    check_shown(
        "|ci|_ and |add|_ .\n\n.. |ci| image:: https://e.example/ci.svg\n.. _ci: https://e.example/ci\n\
         .. |add| replace:: ``add()``\n.. _add: https://e.example/add\n",
        "ci and add() .",
        &["https://e.example/ci", "https://e.example/add"],
    );
    check_shown(
        "See Installation_, `The use`_, missing_ and `no such`_.\n\nInstallation\n------------\n\na\n\nThe *use*\n-------\n\nb",
        "See Installation, The use, missing_ and no such.¦Installation¦a¦The use¦b",
        &["#u-installation", "#u-the-use"],
    );
    // A heading takes no name from a target, nor from a footnote.
    check_shown(
        "C++\n===\n\nC\n=\n\nfn 1\n====\n\nC_ and `C++`_ and [1]_ and a_.\n\n.. [1] Note.\n.. _a:\n.. _b: https://e.example/b\n",
        "C++¦C¦fn 1¦C and C++ and [1] and a.¦[1] Note.",
        &["#u-c-1", "#u-c", "#u-fn-1-1", "https://e.example/b"],
    );
    check_shown(
        "It is `Some Term`_, `b`_ and `c d`_.\n\n..  _Some Term: https://e.example/t\n.. _b: `c d`_\n.. _`c d`:\n   https://e.example/\n   c\n",
        "It is Some Term, b and c d.",
        &["https://e.example/t", "https://e.example/c", "https://e.example/c"],
    );
    check_shown(
        "It follows :pep:`246` and :rfc:`2822#section-1`.",
        "It follows PEP 246 and RFC 2822.",
        &["https://peps.python.org/pep-0246", "https://tools.ietf.org/html/rfc2822.html#section-1"],
    );
    check_shown(
        "A [#]_, [#n]_, [#]_, [1]_, [*]_, [*]_, [CIT]_ and [none]_.\n\n.. [#] a\n.. [#n] n\n.. [1] one\n.. [#] b\n\
         .. [*] star\n.. [*] dagger\n.. [CIT] c\n",
        "A [2], [3], [4], [1], [*], [†], [CIT] and [none]_.¦[2] a¦[3] n¦[1] one¦[4] b¦[*] star¦[†] dagger¦[CIT] c",
        &["#u-fn-", "#u-fn-n", "#u-fn--1", "#u-fn-1", "#u-fn--2", "#u-fn--3", "#u-fn-cit"],
    );
    check_shown(
        ".. image::\n    https://e.example/i.png\n    :alt: Build\n    :target: there_\n\n.. _there: https://e.example/b\n",
        "Build",
        &["https://e.example/b"],
    );
}

/// Links without a name take the targets that docutils sees, or none.
#[test]
fn links_without_a_name_do_not_move() {
    let first = "https://e.example/a";
    let second = "https://e.example/b";
    let text = |directive: &str| {
        format!(
            ".. {directive}::\n\n    Keep `this`__ in mind.\n\n    .. __: {first}\n\nRead `the guide`__.\n\n.. __: {second}\n"
        )
    };
    check_shown(&text("Note"), "Note Keep this in mind.¦Read the guide.", &[first, second]);
    for (directive, shown) in [("unknown", true), ("Code", true), ("raw", false)] {
        let found = shown_links(&text(directive));
        assert_eq!(found.1, [second], "{directive}");
        assert_eq!(found.0.contains("Keep"), shown, "{directive}");
    }
    let literal = format!("Like this::\n\n    __ {first}\n\nRead `the guide`__.\n\n__ {second}\n");
    assert_eq!(shown_links(&literal).1, [second]);
    // One is missing, and nobody knows which.
    check_shown(
        &format!("`a`__ and `b`__ and c__.\n\n__ {first}\n\n__ {second}\n"),
        "a and b and c.",
        &[],
    );
}

fn shown_links(text: &str) -> (String, Vec<String>) {
    shown(text, Format::RestructuredText)
}

#[test]
fn nothing_of_restructured_text_is_lost() {
    check_shown(
        ".. _a: https://e.example/a\n\n A line with one blank before it.\n\nEnd.",
        "A line with one blank before it.¦End.",
        &[],
    );
    check_shown("..\n\n   Quoted.\n\n..\n   A comment.\n\nEnd.", "Quoted.¦End.", &[]);
    check_shown(
        "- First thing\n    + inner one\n    + inner two\n- Second\n",
        "First thing¦inner one¦inner two¦Second",
        &[],
    );
    check_shown(
        "-a            all\n-b FILE       the file\n              goes on\n--long=X, -l  long\n/V            dos\n",
        "-a¦all¦-b FILE¦the file goes on¦--long=X, -l¦long¦/V¦dos",
        &[],
    );
    check_shown("a) one\nb) two\n\niv. four\n\n(#) next\n", "one¦two¦four¦next", &[]);
    check_shown("1. one\nnot indented\n", "1. one not indented", &[]);
    check_shown(
        "A paragraph\nof two lines\n  and a quotation.\n",
        "A paragraph of two lines¦and a quotation.",
        &[],
    );
    check_shown("Quoted::\n\n> a *b*\n> c\n\nEnd.", "Quoted:¦> a *b* > c¦End.", &[]);
    check_shown(".. code::\n   print(1) # `x`\n", "print(1) # `x`", &[]);
    check_shown(
        ".. |x| image: y\n\n.. _no target\n\nEnd.",
        ".. |x| image: y¦.. _no target¦End.",
        &[],
    );
    check_shown(
        "a\\ *b*\\c and \\*d*, 2*3*4, *e f* and ``g`` x_y_z_.",
        "abc and *d*, 2*3*4, e f and g x_y_z_.",
        &[],
    );
    check_shown("\tquoted\n\nx\n\ty\n", "quoted¦x¦y", &[]);
}

#[test]
fn plain_text_stays_as_it_is() {
    check(Format::Plain, "a <b>\n  c & d", "<pre>a &lt;b&gt;\n  c &amp; d</pre>");
}

#[test]
fn long_texts_are_cut() {
    let long = "é".repeat(INPUT_BYTES_MAX);
    let found = rendered(&long, Format::Plain);
    assert!(found.is_cut && found.html.len() <= INPUT_BYTES_MAX + 20);
    assert!(!rendered("short", Format::Plain).is_cut);
}

/// Of such pieces are texts for which a browser's parser, or a careless one, takes quadratic time or memory.
const HEAVY: [&str; 81] = [
    "<div>",
    "<b>",
    "<b a=1><p>",
    "<a href=x>",
    "<table>",
    "<table><td>",
    "<li>",
    "<ul><li>",
    "<p>",
    "<h1>",
    "</p>",
    "<dl><dd>",
    "x<b></b>",
    "<table>x",
    "<svg>",
    "<svg/>",
    "<script>",
    "<",
    "&",
    "&amp",
    "<!--",
    "<a id=a>",
    "<h1>a",
    "# a\n",
    "> ",
    ">",
    "- ",
    "* a\n",
    "`",
    "``",
    "*",
    "**a ",
    "_a ",
    "[",
    "[a](",
    "![",
    "[[",
    "](",
    "|",
    "|a",
    "| a\n",
    "|-|\n",
    "\\",
    "1. ",
    "a\n===\n",
    "== ==\nx\n",
    ".. |a| replace:: |a| |a|\n\n",
    "|a|",
    "a_. ",
    "a-_.",
    ":a:`",
    "`a <b>`_ ",
    ".. _a: b\n",
    ".. image:: x\n",
    "::\n\n  a\n",
    "http://a ",
    "http://",
    "://",
    "(http://a",
    "  a\n",
    " ",
    "\n",
    "\t",
    "\0",
    "é",
    "<th>",
    "<details>",
    "<summary>",
    "<input type=checkbox>",
    "<img src=x>",
    "<x ",
    "<a b=c d=e f=g ",
    "\"",
    "[^1]",
    "[^1]: a\n",
    "[a]: b\n",
    "[a]",
    "[1]_ ",
    ".. [1] a\n",
    "term\n  def\n",
    ":a: b\n",
];

/// A test that does not end is a failure.
#[test]
fn nothing_takes_more_than_its_share() {
    let full = |unit: &str| unit.repeat(INPUT_BYTES_MAX / 4 / unit.len());
    for unit in HEAVY {
        for format in FORMATS {
            let html = rendered(&full(unit), format).html;
            assert!(html.len() < 4 * OUTPUT_BYTES_MAX, "{unit:?} {format:?}: {} bytes", html.len());
        }
    }
    // Deeper with each line.
    let deeper: String = (0..700).map(|depth| format!("{}- a\n", " ".repeat(depth))).collect();
    for format in FORMATS {
        rendered(&deeper, format);
    }
}

/// Texts that define something once and use it many times. Uses within the bound are written, and then it stops.
#[test]
fn what_is_used_again_and_again_has_a_bound() {
    let long = "x".repeat(INPUT_BYTES_MAX / 2);
    let nested = format!(
        ".. |a| replace:: {}\n.. |b| replace:: {}\n.. |c| replace:: {}\n\n",
        "|b|".repeat(333),
        "|c|".repeat(333),
        "c".repeat(999)
    );
    let links =
        format!(".. |l| replace:: {}\n.. _a: http://{}\n\n", "a_ ".repeat(333), "a".repeat(2_000));
    for (definition, usage) in [
        (nested, "|a| "),
        (links.clone(), "a_ "),
        (links, "|l| "),
        (format!(".. _a: {long}\n\n"), "a_ "),
        (format!("`a <{long}>`_\n\n"), "a_ "),
        (format!("`a <{long}>`_\n\n"), "`b <a_>`_ "),
        (format!(".. |a| image:: {long}\n\n"), "|a| "),
        (format!(".. |a| image:: b\n   :alt: {long}\n\n"), "|a| "),
        (format!(".. |a| image:: b\n   :target: {long}\n\n"), "|a| "),
        (format!(".. |a| replace:: {long}\n\n"), "|a| "),
        (format!("{}\n", "= ".repeat(40)), "x\n"),
        (format!("==  {}\nx\n", "= ".repeat(38)), "x\n"),
        (format!("[a]: {long}\n\n"), "[a] "),
        (format!("[^a]: {long}\n\n"), "[^a] "),
    ] {
        let usages = usage.repeat((INPUT_BYTES_MAX - definition.len()) / usage.len() - 100);
        let text = format!("{definition}{usages}\n{definition}");
        for format in [Format::Markdown, Format::RestructuredText] {
            let html = match format {
                Format::Markdown => {
                    markdown::html(&text, &Options::default(), &|it| vec![it.to_owned()]).html
                }
                _ => rst::html(&text).0,
            };
            // A step writes no more than the text has, escaped.
            let most = WRITTEN_BYTES_MAX + 6 * INPUT_BYTES_MAX;
            assert!(html.len() <= most, "{usage:?} {format:?}: {} bytes", html.len());
        }
    }
}

#[test]
fn what_is_not_shown_is_said() {
    let address = format!("http://e.example/{}", "a".repeat(2_000));
    let text = format!(".. _a: {address}\n\n{}", "a_ ".repeat(10_000));
    assert!(rendered(&text, Format::RestructuredText).is_cut);
    assert!(rendered(&"x\n\n".repeat(40_000), Format::RestructuredText).is_cut);
    // Later steps remove so much that the result does not show that it was cut.
    let text = text.replace("http:", "data:");
    let found = rendered(&text, Format::RestructuredText);
    assert!(found.is_cut && found.html.len() < OUTPUT_BYTES_MAX);
}

/// Links and substitutions up to the bounds.
#[test]
fn what_is_within_the_bounds_is_shown() {
    let long = "a".repeat(HREF_BYTES_MAX - "https://e.example/".len());
    for (address, is_link) in [(&long, true), (&format!("{long}b"), false)] {
        for text in [
            format!("x_\n\n.. _x: https://e.example/{address}"),
            format!("`x <https://e.example/{address}>`_"),
            format!("`x`__\n\n__ https://e.example/{address}"),
        ] {
            let html = rendered(&text, Format::RestructuredText).html;
            assert_eq!(html.contains("href="), is_link, "{html}");
            assert!(html.contains('x'), "{html}");
        }
    }
    let text = format!(".. |a| replace:: once\n\n{}", "|a| ".repeat(1_100));
    let found = rendered(&text, Format::RestructuredText);
    assert_eq!((found.html.matches("once").count(), found.html.matches("a ").count()), (1_000, 99));
}

proptest::proptest! {
    /// Random parts of reStructuredText, often repeated: the output stays within its bound, and is harmless.
    #[test]
    fn no_text_makes_more_than_the_bound(parts in proptest::collection::vec((proptest::sample::select(vec![
        ".. |a| replace:: |b| |b| a_ `a`__ |b|\n", ".. |b| replace:: |c||c||c| |a|\n", ".. |c| image:: x\n   :target: y\n   :alt: z\n",
        ".. _a: https://e.example/a/long/address/of/a/page\n", "__ https://e.example/b\n", ".. [1] note |a|\n", "|a| ", "|b|", "|c|",
        "a_ ", "`a`_ ", "`a`__ ", "[1]_ ", ":x:`|a|` ", "**a** ", "\n", "\n\n", "- ", "  ", "1. ", "a\n===\n", "== == ==\n", "x  y  z\n",
        "::\n\n", "| ", ".. note:: |a|\n", ".. figure:: x\n", ":a: b\n", "term\n  ", "\t", "` ", "* ", "`` ", "_",
    ]), proptest::sample::select(vec![1, 1, 1, 2, 50, 2_000])), 1..30)) {
        let text: String = parts.iter().map(|(part, count)| part.repeat(*count)).collect();
        let (text, _) = cut(&text);
        let (html, is_cut) = rst::html(text);
        proptest::prop_assert!(html.len() <= WRITTEN_BYTES_MAX + 6 * INPUT_BYTES_MAX, "{} bytes", html.len());
        proptest::prop_assert!(is_cut || html.len() <= WRITTEN_BYTES_MAX);
    }

    /// Blocks and marks in any order, each around a word of its own: every word is shown.
    #[test]
    fn no_word_of_restructured_text_is_lost(parts in proptest::collection::vec((0_usize..8, proptest::sample::select(vec![
        "W\n\n", "- W\n", "- W\n\n", "* W\n  W\n", "1. W\n", "(a) W\n\n", "W\n  W\n\n", ":W: W\n", "-a W  W\n", "| W\n", ">>> W\n\n", "W::\n\n  W\n\n",
        ".. note:: W\n\n", ".. Note::\n   W\n\n", ".. unknown:: W\n\n   W\n\n", ".. list-table:: W\n\n   * - W\n", ".. csv-table:: W\n\n   W, \"W\"\n\n",
        ".. figure:: x\n   :alt: W\n\n   W\n\n", ".. [#] W\n\n", ".. _a: b\n\n", "__ b\n\n", "..\n\n", "== ==\nW W\n== ==\n\n", "=====  ==\nW      x\n=====  ==\n\n",
        "+----+---+\n| W  | x |\n+----+---+\n\n", "W\n=====\n\n", "=====\nW\n=====\n\n", "----\n\n", "`W`_ ", "`W <b>`__ ", "`W`:W ", "|W| ", "*W* ", "**W ", "``W`` ",
        ":x:`W` ", "W_ ", "W__. ", "[W]_ ", "_`W` ", "\\W ", "W\\ ", "<W> ", "W\n", "é W 日\n", "\tW\n", ".. code:: W W\n\n", ".. container:: x\n\n   W\n\n",
    ])), 0..25)) {
        let (mut text, mut words) = (String::new(), Vec::new());
        for (indentation, part) in parts {
            if text.ends_with('\n') {
                text.push_str(&" ".repeat(indentation));
            }
            for (at, piece) in part.split('W').enumerate() {
                if at > 0 {
                    words.push(format!("w{}w", words.len()));
                    text.push_str(&words[words.len() - 1]);
                }
                text.push_str(piece);
            }
        }
        let html = rendered(&text, Format::RestructuredText).html;
        for word in words {
            proptest::prop_assert!(html.contains(&word), "{word} of {text:?}: {html}");
        }
    }

    /// Parts of all languages in any order.
    #[test]
    fn whatever_comes_is_harmless(parts in proptest::collection::vec(proptest::sample::select(vec![
        "<", ">", "</", "/>", "\"", "'", "=", "&", ";", "#", "*", "_", "`", "``", "[", "]", "(", ")", "|", "\n", "\n\n", "  ", "- ",
        "a", "b", ":", "::", ".. ", "p", "div", "b>", "<b>", "<p>", "</p>", "<table>", "<td>", "</table>", "<tr>", "<ul>", "<li>",
        "<svg>", "</svg>", "<style>", "</style>", "<script>", "</script>", "<math>", "<mtext>", "<a href=", "<img src=", " onerror=",
        "javascript:", "https://e.example/", "<!--", "-->", "<h1>", "<select>", "<template>", "<dl>", "<dt>", "<dd>", "<pre>", "===", "[TOC]", "[^1]", "\n[^1]: ", "\n: ", "\n> [!TIP]\n> ", "<div class=toc>", " class=\"toc\"",
        "\n```js\n", "<pre><code class=language-html>", "<span class=hl-word>", ".. code:: sh\n\n  ",
        "image:: ", "`_", "<details>", "<summary>", "<noscript>", "<form>", "<th>", "</a>", "<a id=x>", "&lt;", "\u{0}", "é",
    ]), 0..40)) {
        let text = parts.concat();
        for format in FORMATS {
            let html = rendered(&text, format).html;
            check_harmless(&html, &text);
            proptest::prop_assert_eq!(&clean::clean(&html, html.contains("<math")), &html, "{:?}", format);
        }
    }
}

#[test]
fn characters_that_html_has_no_place_for_are_replaced() {
    let shown = "<p>a\u{fffd}b\u{fffd}\u{fffd}\tc\u{85b}</p>";
    check_markdown("a\u{1}b\u{85}\u{fffe}\tc\u{85b}", shown);
    check_html("<p>a&#1;b\u{7f}\u{1ffff}\tc\u{85b}</p>", shown);
    check(Format::Plain, "\x1b[31mred\x0c", "<pre>\u{fffd}[31mred\x0c</pre>");
    let rendered = rendered("x\n\n# a\u{1}b", Format::Markdown);
    assert_eq!(rendered.contents[0].text, "a\u{fffd}b");
}

#[test]
fn formulas_are_mathml() {
    check_markdown(
        "Let $x^2$ be.",
        "<p>Let <math><msup><mi>x</mi><mn>2</mn></msup></math> be.</p>",
    );
    check_markdown(
        "$$\n\\frac{a}{b}\n$$",
        "<p><math display=\"block\"><mfrac><mi>a</mi><mi>b</mi></mfrac></math></p>",
    );
    check_markdown("It costs $5, and $x$.", "<p>It costs $5, and <math><mi>x</mi></math>.</p>");
    check_markdown("a $<$ b", "<p>a <math><mo lspace=\"0\" rspace=\"0\">&lt;</mo></math> b</p>");
    check_markdown(
        "[$x$](b)",
        "<p><a href=\"/article/b\" rel=\"nofollow noopener\"><math><mi>x</mi></math></a></p>",
    );
    check_markdown(
        "| $x$ |\n| --- |\n| $y$ |\n",
        concat!(
            "<div class=\"wide\" tabindex=\"0\" role=\"group\" aria-label=\"Table 1\"><table><thead><tr><th>",
            "<math><mi>x</mi></math></th></tr></thead><tbody><tr><td><math><mi>y</mi></math></td></tr></tbody></table></div>"
        ),
    );
    // The sides of cells are classes.
    check_markdown(
        "$$\\begin{aligned} a &= b \\\\ &= c \\end{aligned}$$",
        r#"<p><math display="block"><mtable displaystyle="true" scriptlevel="0"><mtr><mtd class="right"><mi>a</mi></mtd><mtd class="left"><mo>=</mo><mi>b</mi></mtd></mtr><mtr><mtd class="right"></mtd><mtd class="left"><mo>=</mo><mi>c</mi></mtd></mtr></mtable></math></p>"#,
    );
}

#[test]
fn amounts_of_money_and_code_are_no_formulas() {
    for text in [
        "costs $5 and $6",
        "between $5 and 6 $ or so",
        "$5, $6, $7",
        "US$5 to US$6",
        "a $ b $ c",
        "$HOME/a:$PATH/b",
        "$HOME/$USER",
        "($5) or ($6)",
    ] {
        check_markdown(text, &format!("<p>{text}</p>"));
    }
    check_markdown("\\$x\\$", "<p>$x$</p>");
    check_markdown("`$x$`", "<p><code>$x$</code></p>");
    check_markdown("```\n$x$\n```", "<pre><code>$x$\n</code></pre>");
    check_markdown("    $x$\n", "<pre><code>$x$\n</code></pre>");
    // Descriptions of projects have none.
    let html = render("Let $x$ be.", Format::Markdown, &Options::default()).html;
    assert_eq!(html.trim(), "<p>Let $x$ be.</p>");
}

#[test]
fn formulas_that_are_not_understood_are_code() {
    check_markdown("a $\\unknown{x}$ b", "<p>a <code>$\\unknown{x}$</code> b</p>");
    check_markdown("$$\\frac{a<b}$$", "<p><code>$$\\frac{a&lt;b}$$</code></p>");
    for source in ["\\href{javascript:alert(1)}{x}", "\\def\\a{\\a\\a}\\a", "\\includegraphics{x}"]
    {
        let html = rendered(&format!("${source}$"), Format::Markdown).html;
        assert!(html.starts_with("<p><code>$"), "{html}");
    }
    let deep = format!("${}x{}$", "{".repeat(10_000), "}".repeat(10_000));
    let html = rendered(&deep, Format::Markdown).html;
    assert!(html.starts_with("<p><code>${{{"), "it is text");
    // A heading is a line of the contents, and the text of a picture an attribute.
    let shown = rendered("# A $x$\n\n![a $y$](picture.png)\n\n## B $x$\n", Format::Markdown);
    assert_eq!(
        shown.html,
        "<h2 id=\"u-a-x\">A <code>$x$</code></h2>\n<p><img src=\"/article/picture.png\" alt=\"a $y$\" loading=\"lazy\"></p>\n<h3 id=\"u-b-x\">B <code>$x$</code></h3>\n"
    );
    assert_eq!(shown.contents[0].text, "A $x$");
}

#[test]
fn a_text_of_formulas_is_bounded() {
    for piece in [
        "$x$ ",
        "$$x$$\n\n",
        "$\\frac{a}{b}$ ",
        "$",
        "$$",
        "$x",
        "$\\hat{",
        "<math name=\"0\"></math>$x$",
    ] {
        let text = piece.repeat(INPUT_BYTES_MAX / piece.len());
        let shown = rendered(&text, Format::Markdown);
        assert!(shown.html.len() < 2 * OUTPUT_BYTES_MAX, "{piece}: {}", shown.html.len());
    }
}

/// What strangers write as MathML is left out, and a formula holds nothing but text.
#[test]
fn mathml_of_strangers_is_left_out() {
    for format in [Format::Markdown, Format::Html] {
        for text in [
            "<math><mi>x</mi></math>",
            "<math href=\"javascript:alert(1)\"><mi>x</mi></math>",
            "<math><maction actiontype=\"statusline\" xlink:href=\"javascript:alert(1)\">x</maction></math>",
            "<math><annotation-xml encoding=\"text/html\"><script>alert(1)</script></annotation-xml></math>",
            "<math><mtext><table><mglyph><style><!--</style><img title=\"--&gt;&lt;img src=1 onerror=alert(1)&gt;\">",
            "<math name=\"0\"></math>",
        ] {
            let html = rendered(text, format).html;
            check_harmless(&html, text);
            assert!(!html.contains("<m"), "{text}: {html}");
        }
    }
    for source in [
        "\\text{</mtext></math><script>alert(1)</script>}",
        "\\text{<img src=x onerror=alert(1)>}",
        "\\text{&lt;script&gt;}",
        "\\mathrm{<mglyph><style>}",
        "\\color{red;background:url(//evil.example)} x",
        "\\hspace{-99999cm} x",
        "\\operatorname{</mo><script>}",
        "\\begin{array}{<script>} x \\end{array}",
        "\\tag{<script>} x",
    ] {
        for marks in ["$", "$$"] {
            let html = rendered(&format!("{marks}{source}{marks}"), Format::Markdown).html;
            check_harmless(&html, source);
            let is_away = html.contains("width=\"-");
            assert!(!is_away && !html.contains("style="), "{html}");
        }
    }
    // The sanitiser by itself, whatever is before it.
    let harm = "<math href=\"https://e.example/\" style=\"color:red\"><maction>a</maction><mi href=\"x\" onclick=\"y\">b</mi>\
        <mspace width=\"99999em\" height=\"1em\"></mspace><annotation-xml><b>c</b></annotation-xml><mtext><mglyph src=\"x\"></mglyph></mtext></math>";
    assert_eq!(clean::clean(harm, false), "<b>c</b>");
    assert_eq!(
        clean::clean(harm, true),
        r#"<math>a<mi>b</mi><mspace height="1em"></mspace></math><b>c</b>"#
    );
    // A text can name the places of its formulas, and gets each once.
    let html = rendered("<math name=\"0\"></math> $x$ <a name=\"0\"></a>", Format::Markdown).html;
    assert_eq!(html.matches("<math").count(), 1, "{html}");
    check_harmless(&html, "a place");
}

#[test]
fn code_is_highlighted() {
    check_markdown(
        "```python\ndef f(x): # why\n    return \"<b>\" + 1\n```",
        "<pre><code><span class=\"hl-word\">def</span> <span class=\"hl-name\">f</span>(x): <span class=\"hl-comment\"># why</span>\n    \
         <span class=\"hl-word\">return</span> <span class=\"hl-string\">\"&lt;b&gt;\"</span> + <span class=\"hl-value\">1</span>\n</code></pre>",
    );
    let word = "<pre><code><span class=\"hl-word\">if</span> x\n</code></pre>";
    for info in ["sh", "Bash", "rust,ignore", "js {1,3}", "ts:src/x.ts", "PKGBUILD", "pycon"] {
        check_markdown(&format!("```{info}\nif x\n```"), word);
    }
    check_html("<pre><code class='a language-python'>if x\n</code></pre>", word);
    // Without a language, or of one that is not known; in a line; and what is no code.
    for info in ["", "text", "language-python", "<b>", "é"] {
        check_markdown(&format!("```{info}\nif x\n```"), "<pre><code>if x\n</code></pre>");
    }
    check_html("<code class=language-python>if x</code>", "<code>if x</code>");
    check_html("<pre class=language-python>if x</pre>", "<pre>if x</pre>");
    // An element in it is not taken for code.
    check_html(
        "<pre><code class=language-python>if <b>if</b> if</code></pre>",
        "<pre><code><span class=\"hl-word\">if</span> <b>if</b> <span class=\"hl-word\">if</span></code></pre>",
    );
    // Strangers cannot have it for what is no code.
    check_html("<p><span class=hl-word style='color:red'>a</span></p>", "<p>a</p>");
    assert_eq!(
        clean::clean("<span class='card hl-word' style='color:red'>a</span>", false),
        "<span class=\"hl-word\">a</span>"
    );
}

/// What is beyond a bound stays plain.
#[test]
fn highlighting_is_bounded() {
    let fenced = |code: &str| format!("```sh\n{code}\n```\n");
    let parts = |text: &str| rendered(text, Format::Markdown).html.matches("<span").count();
    let of_length = |bytes: usize| fenced(&format!("if {}", "x".repeat(bytes - "if \n".len())));
    let longest = of_length(highlight::BLOCK_BYTES_MAX);
    assert_eq!(parts(&longest), 1);
    assert_eq!(parts(&of_length(highlight::BLOCK_BYTES_MAX + 1)), 0);
    let blocks = highlight::CODE_BYTES_MAX / highlight::BLOCK_BYTES_MAX;
    assert_eq!(parts(&longest.repeat(blocks)), blocks);
    assert_eq!(parts(&format!("{}{}", longest.repeat(blocks), fenced("if x"))), blocks);
    let thousand = fenced(&"1 ".repeat(1_000));
    let most = highlight::PARTS_MAX / 1_000;
    assert_eq!(parts(&thousand.repeat(most + 1)), highlight::PARTS_MAX);
}

/// The languages that are highlighted, as the documentation says.
const LANGUAGES: [&str; 17] = [
    "bash",
    "console",
    "css",
    "dockerfile",
    "html",
    "ini",
    "javascript",
    "json",
    "makefile",
    "markdown",
    "pkgbuild",
    "python",
    "rust",
    "toml",
    "typescript",
    "xml",
    "yaml",
];

/// What `language` makes of the code, and the text of that.
fn highlighted(code: &str, language: &str) -> (String, String) {
    let known = highlight::language(&format!("language-{language}")).expect("it is known");
    let (mut html, mut shown) = (String::new(), String::new());
    highlight::Highlighter::default().write(code, known, &mut html);
    for token in Tokenizer::new(&html) {
        if let Ok(Token::String(text)) = token {
            shown.push_str(std::str::from_utf8(&text).expect("text"));
        }
    }
    (html, shown)
}

/// Code that nests, that ends within something, and lines without an end: each up to the longest block.
#[test]
fn hostile_code_is_highlighted() {
    let units = "( { [ < (((( ${ $( ` `${ \" ' \"\"\" ''' \\ \\\" \"\\~ / /* /[\\~ /[~ // <!-- <![CDATA[ <a_ <a_b=\" </ & # #[ r# r#\" b' \
        <<A_ <<A~ <<'A -_ -_|~ a:_|~__ a:_>~~ ?_ @ @a ___@ $ -- - . 0x 1e 1_ = a= [[ ``` ** [a]( ! _ ~ ~~ a A é \u{10ffff} if_ > | : ; \t";
    for language in LANGUAGES {
        for unit in units.split(' ') {
            let unit = unit.replace('_', " ").replace('~', "\n");
            let code = unit.repeat(highlight::BLOCK_BYTES_MAX / unit.len());
            let known = highlight::language(&format!("language-{language}")).expect(language);
            // Of too many parts nothing is coloured.
            if let Some(spans) = highlight::Highlighter::default().spans(&code, known) {
                let shown: String = spans.iter().map(|span| span.text).collect();
                assert!(shown == code, "{language} {unit:?}");
            }
        }
    }
}

proptest::proptest! {
    /// Parts of code in any order, in every language.
    #[test]
    fn no_code_is_lost(at in 0..LANGUAGES.len(), parts in proptest::collection::vec(proptest::sample::select(vec![
        "<", ">", "</", "/>", "<a", "b=", "<!--", "-->", "<?", "?>", "<script>", "</script", "&", "&amp;", ";", "\"", "'", "`", "\"\"\"", "'''", "\\",
        "\n", "\n\n", " ", "   ", "\t", "a", "é", "\u{301}", "🙂", "if", "def ", "class ", "fn ", "let ", "1", "0x", "1.5e", ".", ",", ":", ": ",
        "=", "==", "#", "# ", "#[", "]", "[", "{", "}", "(", ")", "$", "${", "$(", "<<A", "<<-'A'", "\nA\n", "|", "|\n", "- ", "-", "--", "/", "//", "/*",
        "*/", "r#\"", "\"#", "b'", "@", "@media ", "!", "*", "**", "_", "```", "~", "%", "^", "?", "+", "2026-01-02T03:04", "FROM ", "true",
    ]), 0..60)) {
        let code = parts.concat();
        let (html, shown) = highlighted(&code, LANGUAGES[at]);
        proptest::prop_assert_eq!(shown, code);
        check_harmless(&html, LANGUAGES[at]);
        proptest::prop_assert_eq!(clean::clean(&html, false).matches("<span").count(), html.matches("<span").count());
    }
}
