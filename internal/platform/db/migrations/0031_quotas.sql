-- What each node may use of a limit that all nodes share. A row is written by its node alone, and goes with its node.
CREATE TABLE quotas (
	key TEXT NOT NULL,               -- the limit: its kind and name
	node TEXT NOT NULL REFERENCES nodes (id) ON DELETE CASCADE,
	want DOUBLE PRECISION NOT NULL,  -- what the node could use
	used DOUBLE PRECISION NOT NULL,  -- what it cannot give back at once
	held DOUBLE PRECISION NOT NULL,  -- the most that it uses until it writes otherwise
	PRIMARY KEY (key, node)
);

CREATE INDEX quotas_node ON quotas (node);
