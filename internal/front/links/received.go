package links

import (
	"context"
	"io"
	"mime"
	"net/http"
	"strconv"

	"github.com/postrider/postrider/internal/outbound/receiving"
)

// serveFile serves the file that a link's token refers to.
func (l *Links) serveFile(open func(ctx context.Context, token string) (receiving.Download, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		d, err := open(r.Context(), r.PathValue("token"))
		if err != nil {
			l.fail(w, r, err)
			return
		}
		defer d.Body.Close()
		writeFileHeader(w, d.Filename, d.ContentType, d.Size)
		if _, err := io.Copy(w, d.Body); err != nil && r.Context().Err() == nil {
			l.log.Warn("a download failed midway", "file", d.Filename, "error", err)
		}
	}
}

// writeFileHeader writes the HTTP header for a file from an untrusted sender. The header makes browsers save the file
// without interpreting its content.
func writeFileHeader(w http.ResponseWriter, name, contentType string, size int64) {
	disposition := mime.FormatMediaType("attachment", map[string]string{"filename": name})
	if name == "" || disposition == "" {
		disposition = "attachment"
	}
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.FormatInt(size, 10))
	h.Set("Content-Disposition", disposition)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'")
	h.Set("Cache-Control", "private, no-store")
	h.Set("X-Robots-Tag", "noindex")
}
