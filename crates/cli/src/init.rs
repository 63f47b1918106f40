//! `larder init`: the store prepared, and its first user made, before a server runs.

use std::io::{self, IsTerminal as _};

use account::UserName;
use clap::Args;
use config::Config;
use state::setup;

use super::password::RootPassword;
use super::{Exit, runtime};

#[derive(Args)]
pub(super) struct Command {
    #[command(flatten)]
    password: RootPassword,
}

impl Command {
    /// Prepares the store, and returns what was made.
    ///
    /// # Errors
    /// What went wrong, with the exit code.
    pub(super) fn run(self, config: &Config) -> Result<String, Exit> {
        runtime()?.block_on(init(config, &self.password))
    }
}

async fn init(config: &Config, password: &RootPassword) -> Result<String, Exit> {
    let chosen = password.chosen()?;
    setup::create_data_dir(&config.data_dir)?;
    let store = setup::open(config).await?;
    let default = setup::default_root_password(config);
    let made = setup::initialize(&store.records, chosen.clone().or(default)).await?;
    let place = config.database();
    let text = match (made, &chosen) {
        (Some(_), Some(_)) => Ok(format!(
            "prepared {place} and `{}`; the user root has the password that was given\n",
            config.blobs()
        )),
        (Some(made), None) => {
            let is_terminal = io::stdout().is_terminal();
            let shown = setup::hand_over(config, &made, is_terminal)?;
            Ok(format!(
                "prepared {place} and `{}`\n\
                 made the user root {shown}\n\
                 next: `larder serve` starts the server, `larder user add NAME` makes further users, and\n\
                 `larder user password root` changes this password; each with the same --data-dir or --config\n",
                config.blobs(),
            ))
        }
        (None, None) => Ok(already(&place)),
        (None, Some(chosen)) => {
            let stored = setup::load(config, &store.records).await?;
            let accounts = &stored.state().accounts;
            let hash = accounts.user(&UserName::root()).and_then(|root| root.password_hash.clone());
            let is_same =
                hash.is_some_and(|hash| tokio::task::block_in_place(|| hash.verify(chosen)));
            if is_same {
                Ok(already(&place))
            } else {
                Err(Exit::failure(format!(
                    "{place} is initialized already, and the user root has another password than the one \
                     given: nothing was changed. `larder user password root` changes it"
                )))
            }
        }
    };
    store.close().await;
    text
}

fn already(place: &store::DatabaseLocation) -> String {
    format!("{place} is initialized already: nothing was changed\n")
}
