package jobs

// Statements for node rows and heartbeats.
const (
	insertNode  = `INSERT INTO nodes (id, beat, started_at) VALUES ($1, $2, $3)`
	updateBeat  = `UPDATE nodes SET beat = $2 WHERE id = $1`
	selectBeats = `SELECT id, beat FROM nodes`
	deleteNode  = `DELETE FROM nodes WHERE id = $1`
	deleteNodes = `DELETE FROM nodes`

	// deleteDeadNode deletes a node's row unless the node has written another heartbeat.
	deleteDeadNode = `DELETE FROM nodes WHERE id = $1 AND beat = $2`
)

// Statements that make claimed jobs due.
const (
	giveBackJob = `UPDATE jobs SET run_at = $4, set_at = $5, holder = '' WHERE id = $1 AND attempt = $2
		AND holder = $3`
	releaseNodeJobs = `UPDATE jobs SET run_at = $2, set_at = $3, holder = '' WHERE holder = $1`
	releaseAllJobs  = `UPDATE jobs SET run_at = $1, set_at = $2, holder = '' WHERE holder <> ''`
)

// restartWaits restarts the waits whose start is in the future. The set_at column is 0 for times that a caller chose.
const restartWaits = `UPDATE jobs SET run_at = $1 + (run_at - set_at), set_at = $1 WHERE set_at > $2 AND holder = ''
			AND NOT parked AND held = ''`
