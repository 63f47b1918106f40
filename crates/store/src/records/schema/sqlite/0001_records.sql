-- The layout that this file has; one row, raised by each later step.
CREATE TABLE larder_layout (
    layout INTEGER NOT NULL
) STRICT;

-- The serial of the latest commit; one row.
CREATE TABLE larder_store (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    serial INTEGER NOT NULL CHECK (serial >= 0)
) STRICT;

-- The latest body under each key; no body: the key was deleted by that commit.
-- blobs: the SHA-256 digests that the body needs, 32 bytes each.
CREATE TABLE larder_records (
    key TEXT NOT NULL PRIMARY KEY,
    serial INTEGER NOT NULL,
    body BLOB,
    blobs BLOB NOT NULL
) STRICT;

CREATE INDEX larder_records_by_serial ON larder_records (serial, key);

INSERT INTO larder_layout (layout) VALUES (0);
INSERT INTO larder_store (id, serial) VALUES (1, 0);
