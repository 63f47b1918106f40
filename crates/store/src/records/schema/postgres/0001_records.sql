-- The layout that this schema has; one row, raised by each later step.
CREATE TABLE larder_layout (
    layout BIGINT NOT NULL
);

-- The serial of the latest commit; one row, locked by whoever commits.
CREATE TABLE larder_store (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    serial BIGINT NOT NULL CHECK (serial >= 0)
);

-- The latest body under each key; no body: the key was deleted by that commit.
-- blobs: the SHA-256 digests that the body needs, 32 bytes each.
CREATE TABLE larder_records (
    key TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    serial BIGINT NOT NULL,
    body BYTEA,
    blobs BYTEA NOT NULL
);

CREATE INDEX larder_records_by_serial ON larder_records (serial, key);

-- The last serial that each process wrote: how a process whose connection broke during a COMMIT
-- learns whether the commit arrived.
CREATE TABLE larder_writers (
    writer TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    last_serial BIGINT NOT NULL,
    seen_at TIMESTAMPTZ NOT NULL
);

INSERT INTO larder_layout (layout) VALUES (0);
INSERT INTO larder_store (id, serial) VALUES (1, 0);
