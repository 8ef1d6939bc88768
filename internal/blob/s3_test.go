package blob

import (
	"encoding/xml"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// s3Server is what the store needs of the S3 API (objects and ListObjectsV2, path style), on loopback.
type s3Server struct {
	mu      sync.Mutex
	objects map[string][]byte
}

func newS3(t *testing.T) string {
	t.Helper()
	srv := httptest.NewServer(&s3Server{objects: map[string][]byte{}})
	t.Cleanup(srv.Close)
	return "s3://mail?region=eu-1&anonymous=true&use_path_style=true&request_checksum_calculation=when_required&endpoint=" + srv.URL
}

func (s *s3Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // Cut off: nothing is stored.
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key, ok := strings.CutPrefix(r.URL.Path, "/mail/")
	switch {
	case r.Method == http.MethodGet && (!ok || key == ""):
		s.list(w, r.URL.Query().Get("prefix"))
	case r.Method == http.MethodPut:
		s.objects[key] = body
		w.Header().Set("ETag", `"x"`)
	case r.Method == http.MethodDelete:
		delete(s.objects, key)
		w.WriteHeader(http.StatusNoContent)
	case s.objects[key] == nil:
		w.WriteHeader(http.StatusNotFound)
		if r.Method != http.MethodHead {
			io.WriteString(w, `<Error><Code>NoSuchKey</Code><Message>none</Message></Error>`)
		}
	default:
		w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
		w.Write(s.objects[key])
	}
}

func (s *s3Server) list(w http.ResponseWriter, prefix string) {
	type object struct {
		Key          string
		Size         int
		LastModified time.Time
		ETag         string
	}
	answer := struct {
		XMLName     xml.Name `xml:"ListBucketResult"`
		IsTruncated bool
		Contents    []object
	}{}
	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		if strings.HasPrefix(key, prefix) {
			answer.Contents = append(answer.Contents, object{key, len(s.objects[key]), time.Now().UTC(), `"x"`})
		}
	}
	xml.NewEncoder(w).Encode(answer)
}
