package outbox

import (
	"strings"

	"github.com/postrider/postrider/internal/mail/mailparse"
)

// maxImages is the maximum total size of the images in an email's HTML, in bytes of their data URLs.
const maxImages = 20 << 20

// embedImages replaces references to inline images by data URLs. Images of types that could run something, and those
// that would exceed maxImages, are left out.
func embedImages(html string, files []mailparse.File) string {
	var b strings.Builder
	mailparse.WriteWithImages(&b, html, mailparse.SafeImages(files), maxImages) // writing to a Builder never fails
	return b.String()
}
