//! `larder publisher …`: shows, adds and removes the trusted publishers of an index, on the data directory or through a running
//! server.
//!
//! They are the index's setting `trusted_publishers`: each command is `larder index` in other words.

use clap::{Args, Subcommand};
use pypi::{Publisher, StageName};
use serde_json::{Value, json};

use super::remote::CommandTarget;
use super::{Answer, Exit, index};

const HELP: &str = "\
A publisher is PROJECT ISSUER CLAIM=VALUE...: jobs that this issuer says this of may upload this project.
  PROJECT   a name, the start of names and * (acme-*), or * alone; none of them need exist
  ISSUER    the URL of an issuer that the server's configuration names in publishing.issuers
  CLAIM     such as repository_id=123 repository_owner_id=45 workflow=release.yml environment=release ref=refs/tags/*
docs/trusted-publishing.md has examples for GitHub, GitLab and others.";

#[derive(Subcommand)]
pub(super) enum Command {
    /// List the publishers of an index
    List {
        /// Which index, as team/dev
        #[arg(value_name = "USER/INDEX")]
        index: StageName,
        #[command(flatten)]
        answer: Answer,
    },
    /// Let jobs of a CI system upload into an index
    #[command(after_help = HELP)]
    Add(PublisherArgs),
    /// Remove a publisher; tokens that its jobs have upload no more
    #[command(after_help = HELP)]
    Remove(PublisherArgs),
}

#[derive(Args)]
pub(super) struct PublisherArgs {
    /// Which index, as team/dev
    #[arg(value_name = "USER/INDEX")]
    index: StageName,
    /// Which projects
    #[arg(value_name = "PROJECT")]
    projects: String,
    /// The URL of the issuer
    #[arg(value_name = "ISSUER")]
    issuer: String,
    /// What the issuer says of the job
    #[arg(value_name = "CLAIM=VALUE", required = true)]
    claims: Vec<String>,
}

impl PublisherArgs {
    fn publisher(&self) -> Result<Publisher, Exit> {
        let claim = |text: &String| match text.split_once('=') {
            // A shell has taken the quotes away.
            Some((name, value)) if value.contains([' ', '"', '\\']) => {
                format!("{name}={}", json!(value))
            }
            _ => text.clone(),
        };
        let claims: Vec<String> = self.claims.iter().map(claim).collect();
        let text = format!("{} {} {}", self.projects, self.issuer, claims.join(" "));
        text.parse().map_err(Exit::usage)
    }
}

impl Command {
    /// Carries out the command at `place`, and returns the text for stdout.
    ///
    /// # Errors
    /// What went wrong, with the exit code. Nothing is changed then.
    pub(super) fn run(
        self,
        place: impl FnOnce() -> Result<CommandTarget, Exit>,
    ) -> Result<String, Exit> {
        let (named, operator, said) = match self {
            Command::List { index, answer } => {
                let found = index::settings(index, place)?["trusted_publishers"].take();
                let found = if found.is_null() { json!([]) } else { found };
                return Ok(if answer.is_json { format!("{found:#}\n") } else { lines(&found) });
            }
            Command::Add(named) => (named, "+=", "may upload to"),
            Command::Remove(named) => (named, "-=", "uploads no more to"),
        };
        let publisher = named.publisher()?;
        let index = named.index;
        let change = format!("trusted_publishers{operator}{publisher}");
        index::set_one(index.clone(), change, place)?;
        Ok(format!("{publisher} {said} {index}\n"))
    }
}

fn lines(publishers: &Value) -> String {
    let texts = publishers.as_array().into_iter().flatten().filter_map(Value::as_str);
    texts.map(|text| format!("{text}\n")).collect()
}
