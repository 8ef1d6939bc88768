package mailparse

import (
	"encoding/base64"
	"io"
	"net/url"
	"slices"
	"strings"
)

// safeImages are the types of images that browsers show without running anything. SVG is not among them, because an SVG
// file may contain scripts and load other files.
var safeImages = []string{"image/png", "image/jpeg", "image/jpg", "image/gif", "image/webp", "image/avif", "image/bmp"}

// SafeImages returns those files to which HTML may refer as images and that run nothing in a browser.
func SafeImages(files []File) []File {
	return slices.DeleteFunc(slices.Clone(files), func(f File) bool {
		return f.ContentID == "" || !IsSafeImage(f.ContentType)
	})
}

// IsSafeImage reports whether browsers show a file of a media type as an image and run nothing in it.
func IsSafeImage(mediaType string) bool { return slices.Contains(safeImages, mediaType) }

// WriteWithImages writes HTML and replaces the cid: URLs (RFC 2392) of attached files with data URIs. The cid: URLs of
// unknown files are kept. After the HTML has grown by the given number of bytes, WriteWithImages also keeps all
// remaining cid: URLs, because the HTML may refer to one image many times. The memory use of WriteWithImages does not
// depend on the size of its output. An error is returned only if writing to w fails.
func WriteWithImages(w io.Writer, html string, files []File, most int) error {
	byID := map[string]*File{}
	for i := range files {
		if cid := files[i].ContentID; cid != "" && byID[cid] == nil {
			byID[cid] = &files[i]
		}
	}
	left := most
	for {
		before, rest, found := html, "", false
		if len(byID) > 0 {
			before, rest, found = cutCID(html)
		}
		if _, err := io.WriteString(w, before); err != nil || !found {
			return err
		}
		end := strings.IndexAny(rest[len("cid:"):], "\"'<>() \t\r\n&")
		if end < 0 {
			end = len(rest) - len("cid:")
		}
		ref := rest[:len("cid:")+end]
		f := lookUp(byID, ref[len("cid:"):])
		if f == nil || base64.StdEncoding.EncodedLen(len(f.Content)) > left {
			if _, err := io.WriteString(w, ref); err != nil {
				return err
			}
		} else {
			n, err := writeDataURI(w, f)
			if err != nil {
				return err
			}
			left -= n
		}
		html = rest[len(ref):]
	}
}

// writeDataURI writes a file as a data URI (RFC 2397) and returns the URI's length in bytes.
func writeDataURI(w io.Writer, f *File) (n int, err error) {
	head := "data:" + mediaType(f.ContentType) + ";base64,"
	if _, err := io.WriteString(w, head); err != nil {
		return 0, err
	}
	encoder := base64.NewEncoder(base64.StdEncoding, w)
	if _, err := encoder.Write(f.Content); err != nil {
		return 0, err
	}
	return len(head) + base64.StdEncoding.EncodedLen(len(f.Content)), encoder.Close()
}

// cutCID splits a string before the next "cid:" (in upper or lower case) that is not part of a longer word.
func cutCID(html string) (before, rest string, found bool) {
	for from := 0; ; {
		i := strings.IndexByte(html[from:], ':')
		if i < 0 {
			return html, "", false
		}
		i += from
		from = i + 1
		if i >= 3 && strings.EqualFold(html[i-3:i], "cid") && (i == 3 || !isWord(html[i-4])) {
			return html[:i-3], html[i-3:], true
		}
	}
}

func isWord(c byte) bool {
	return c == '-' || c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

func lookUp(byID map[string]*File, ref string) *File {
	if f := byID[ref]; f != nil {
		return f
	}
	if decoded, err := url.PathUnescape(ref); err == nil {
		return byID[decoded]
	}
	return nil
}

// mediaType returns t if it is safe within an HTML attribute, and a default media type otherwise. The media type is
// untrusted, because the sender of the message chose it.
func mediaType(t string) string {
	if t == "" || strings.ContainsFunc(t, func(r rune) bool {
		return !(r < 0x80 && isWord(byte(r))) && !strings.ContainsRune("/+.", r)
	}) {
		return "application/octet-stream"
	}
	return t
}
