package db

import "context"

// Sizes returns the size of each table and its indexes in bytes, including free space within their pages. The size of a
// partitioned table is that of all its partitions. On SQLite, Sizes reads the whole file, which takes seconds for a
// file of several gigabytes.
func (d *DB) Sizes(ctx context.Context) (map[string]int64, error) {
	text := `SELECT CAST(CAST(COALESCE(pg_partition_root(c.oid), c.oid) AS REGCLASS) AS TEXT),
		CAST(SUM(pg_total_relation_size(c.oid)) AS BIGINT) FROM pg_class c
		WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace GROUP BY 1`
	if d.Alone() {
		text = `SELECT t.tbl_name, SUM(s.pgsize) FROM dbstat s, sqlite_schema t
			WHERE s.aggregate = TRUE AND t.name = s.name GROUP BY t.tbl_name`
	}
	sizes := map[string]int64{}
	rows, err := d.Query(ctx, text)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var table string
		var size int64
		if err := rows.Scan(&table, &size); err != nil {
			return nil, err
		}
		sizes[table] = size
	}
	return sizes, rows.Err()
}
