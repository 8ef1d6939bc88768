package domainreports

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/blob"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/sending/domains"
)

// File is the file of a report, as it was received. The caller must close it.
type File struct {
	io.ReadCloser
	Name      string
	MediaType string
	Size      int64
}

// File opens the file of a report about a team's domain.
func (s *Service) File(ctx context.Context, d *domains.Domain, reportID string) (File, error) {
	x, err := scanReport(s.p.DB.QueryRow(ctx, `SELECT `+reportColumns+` FROM received_reports WHERE id = $1
		AND domain_id = $2 AND team_id = $3`, db.ID(reportID), db.ID(d.ID), db.ID(d.TeamID)))
	if fault.KindOf(err) == fault.NotFound {
		return File{}, err
	}
	if err != nil {
		return File{}, fmt.Errorf("find the report %s: %w", reportID, err)
	}
	gone := fault.NotFoundf("The file of this report is not kept. Files are deleted after 30 days, and surplus ones are " +
		"not stored.")
	if !x.HasFile {
		return File{}, gone
	}
	content, err := s.p.Blobs.Get(ctx, x.blobKey)
	if errors.Is(err, blob.ErrNotFound) {
		return File{}, gone
	}
	if err != nil {
		return File{}, fmt.Errorf("open the file of the report %s: %w", reportID, err)
	}
	start := make([]byte, 4)
	n, err := io.ReadFull(content, start)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		content.Close()
		return File{}, fmt.Errorf("read the file of the report %s: %w", reportID, err)
	}
	f := File{Name: "report-" + x.ID, Size: x.Size, ReadCloser: struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(start[:n]), content), content}}
	f.describe(start[:n], x.Kind)
	return f, nil
}

// describe sets the media type, and adds the extension to the name.
func (f *File) describe(start []byte, kind Kind) {
	text, media := ".xml", "application/xml"
	if kind == TLS {
		text, media = ".json", "application/json"
	}
	switch {
	case bytes.HasPrefix(start, []byte{0x1f, 0x8b}):
		f.Name, f.MediaType = f.Name+text+".gz", "application/gzip"
	case bytes.HasPrefix(start, []byte("PK\x03\x04")):
		f.Name, f.MediaType = f.Name+".zip", "application/zip"
	default:
		f.Name, f.MediaType = f.Name+text, media
	}
}
