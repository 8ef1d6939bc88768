package api

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// The OpenAPI document describes every query parameter. Requests are accepted up to the limits that it states, and
// refused beyond them.
func TestQueryParametersAreDescribed(t *testing.T) {
	t.Parallel()
	doc, _ := readDoc(t)
	paths := map[string]bool{}
	for path := range doc.Paths {
		paths[path] = true
	}
	for path := range operationParams {
		if !paths[path] {
			t.Errorf("%s is described but does not exist", path)
		}
	}
	for _, path := range completeLists {
		if !paths[path] {
			t.Errorf("%s is listed but does not exist", path)
		}
	}
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, Options{})
		checked := 0
		for path, methods := range doc.Paths {
			for method, o := range methods {
				for _, p := range o.Parameters {
					if p.In != "query" {
						continue
					}
					if p.Description == "" || p.Schema.Type == nil {
						t.Errorf("%s %s: the parameter %s has the description %q and the type %v", method, path, p.Name,
							p.Description, p.Schema.Type)
					}
					if strings.Contains(path, "{") || method != "get" {
						continue
					}
					good, bad := examples(p.Description, &p.Schema)
					for _, value := range good {
						if w := f.do(t, "GET "+path+"?"+p.Name+"="+url.QueryEscape(value)); w.Code != 200 && w.Code != 404 {
							t.Errorf("%s?%s=%s: %d %s", path, p.Name, value, w.Code, w.Body)
						}
					}
					for _, value := range bad {
						if w := f.do(t, "GET "+path+"?"+p.Name+"="+url.QueryEscape(value)); w.Code != 422 && w.Code != 400 {
							t.Errorf("%s?%s=%s: %d %.200s", path, p.Name, value, w.Code, w.Body)
						}
					}
					checked += len(good) + len(bad)
				}
			}
		}
		if checked < 200 {
			t.Errorf("%d values were checked", checked)
		}
	})
}

// examples returns values that the description of a parameter allows, and values that it does not allow.
func examples(text string, s *docSchema) (good, bad []string) {
	for _, x := range s.Enum {
		good = append(good, fmt.Sprint(x))
	}
	if len(s.Enum) > 0 {
		bad = append(bad, "nonsense")
	}
	if s.Minimum != nil && s.Maximum != nil {
		good = append(good, fmt.Sprint(*s.Minimum), fmt.Sprint(*s.Maximum))
		bad = append(bad, fmt.Sprint(*s.Minimum-1), fmt.Sprint(*s.Maximum+1), "x")
	}
	if s.MaxLength != nil {
		bad = append(bad, strings.Repeat("x", *s.MaxLength+1))
	}
	if s.Format == "uuid" {
		good = append(good, "0190b5a0-0000-7000-8000-00000000000a")
	}
	if strings.Contains(text, "ISO 8601") {
		good, bad = append(good, "2026-01-01", "2026-01-01T12:00:00Z"), append(bad, "yesterday")
	}
	return good, bad
}
