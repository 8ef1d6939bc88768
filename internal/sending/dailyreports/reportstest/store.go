package reportstest

// Rows returns the number of rows of some tables.
func (f *Fixture[D]) Rows(tables ...string) (n int) {
	f.Helper()
	for _, table := range tables {
		var rows int
		if err := f.DB.QueryRow(f.Context(), `SELECT COUNT(*) FROM `+table).Scan(&rows); err != nil {
			f.Fatal(err)
		}
		n += rows
	}
	return n
}
