package api

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// A draft that is read while it is edited is complete: all parts of the response belong to one edit.
func TestReadsWhileEdited(t *testing.T) {
	t.Parallel()
	const edits = 60
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, Options{})
		segment := f.segment()
		graph := func(n string) string {
			return `{"name":"` + n + `","steps":[{"key":"start","type":"trigger","config":{"event_name":"` + n +
				`"}}],"connections":[]}`
		}
		for _, c := range []struct {
			path string
			body func(n string) string
			// parts returns the parts of a response that must all be equal to n.
			parts func(got map[string]any) []any
		}{{"/broadcasts", func(n string) string {
			return fmt.Sprintf(`{"segment_id":%q,"from":"a@acme.example","name":%[2]q,"subject":%[2]q,"text":%[2]q,`+
				`"variants":[{"subject":%[2]q},{"subject":%[2]q}]}`, segment, n)
		}, func(got map[string]any) []any {
			all := []any{got["name"], got["subject"], got["text"]}
			variants, _ := got["variants"].([]any)
			for _, v := range variants {
				all = append(all, v.(map[string]any)["subject"])
			}
			return all
		}}, {"/templates", func(n string) string {
			return fmt.Sprintf(`{"name":%q,"subject":%[1]q,"html":%[1]q}`, n)
		}, func(got map[string]any) []any { return []any{got["name"], got["subject"], got["html"]} }},
			{"/automations", graph, func(got map[string]any) []any {
				step := got["steps"].([]any)[0].(map[string]any)["config"].(map[string]any)
				return []any{got["name"], step["event_name"]}
			}}} {
			made := f.created(t, "POST "+c.path+"\n\n"+c.body("n0"))
			var group errgroup.Group
			done := make(chan struct{})
			group.Go(func() error {
				defer close(done)
				for i := range edits {
					if w := f.do(t, "PATCH "+c.path+"/"+made+"\n\n"+c.body(fmt.Sprint("n", i))); w.Code != 200 {
						return fmt.Errorf("edit: %d %s", w.Code, w.Body)
					}
				}
				return nil
			})
			for range 3 {
				group.Go(func() error {
					for {
						w := f.do(t, "GET "+c.path+"/"+made+"\n\n")
						var got map[string]any
						if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != 200 {
							return fmt.Errorf("read: %d %s", w.Code, w.Body)
						}
						if all := c.parts(got); len(slices.Compact(all)) != 1 {
							return fmt.Errorf("parts of several edits: %v", all)
						}
						select {
						case <-done:
							return nil
						default:
						}
					}
				})
			}
			if err := group.Wait(); err != nil {
				t.Errorf("%s: %v", c.path, err)
			}
		}
	})
}
