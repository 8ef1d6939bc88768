package db_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// ReadTogether reads what was committed before it, while other goroutines read and write.
func TestReadTogether(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		makeTable(t, d)
		var wg sync.WaitGroup
		for w := range 8 {
			wg.Go(func() {
				for i := range 20 {
					name := fmt.Sprint("name ", w, " ", i)
					err := insert(t.Context(), d, name, name, w*100+i)
					var n int
					if err == nil {
						err = d.ReadTogether(t.Context(), func(r db.Reader) error {
							return r.QueryRow(t.Context(), `SELECT n FROM things WHERE id = $1`, name).Scan(&n)
						})
					}
					if err != nil || n != w*100+i {
						t.Errorf("%s is %d, %v", name, n, err)
					}
				}
			})
		}
		wg.Wait()
	})
}
