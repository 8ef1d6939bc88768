package outbox

import (
	"cmp"
	"encoding/base64"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/mail/mailparse"
)

// maxImages is the maximum total size of the images in an email's HTML, in bytes of their data URLs.
const maxImages = 20 << 20

// embedImages replaces references to inline images by data URLs. Images that would exceed maxImages are left out.
func embedImages(html string, files []mailparse.File) string {
	if !strings.Contains(html, "cid:") {
		return html
	}
	files = slices.DeleteFunc(slices.Clone(files), func(f mailparse.File) bool {
		return f.ContentID == "" || !strings.HasPrefix(f.ContentType, "image/")
	})
	// The longest id comes first, because an id may begin with another one.
	slices.SortStableFunc(files, func(a, b mailparse.File) int { return cmp.Compare(len(b.ContentID), len(a.ContentID)) })
	left := maxImages
	var pairs []string
	for _, f := range files[:min(len(files), 100)] {
		size := strings.Count(html, "cid:"+f.ContentID) * (base64.StdEncoding.EncodedLen(len(f.Content)) + 100)
		if size == 0 || size > left {
			continue
		}
		left -= size
		pairs = append(pairs, "cid:"+f.ContentID,
			"data:"+f.ContentType+";base64,"+base64.StdEncoding.EncodeToString(f.Content))
	}
	return strings.NewReplacer(pairs...).Replace(html)
}
