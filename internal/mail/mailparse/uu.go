package mailparse

import (
	"bytes"

	"github.com/postrider/postrider/internal/mail/decode"
	"github.com/postrider/postrider/internal/mail/message"
)

// takeUU moves uuencoded files from the text of a message to its list of files, and returns the remaining text.
//
// Old programs put uuencoded files into the text of messages that do not use MIME, and nothing in the header mentions
// the files. Thunderbird and Outlook show such uuencoded files as attachments; Python's email package and MimeKit leave
// the text unchanged. API users have no other way to get such files, so takeUU treats them as Thunderbird does. The
// text is searched only if the message has neither a MIME-Version nor a Content-Type field.
//
// Thunderbird accepts any line that looks like the beginning of a uuencoded file, and may therefore mistake prose for a
// file. In contrast, takeUU accepts only files that are complete and entirely valid; everything else remains text.
// Uuencoded files also remain text once the message has maxParts parts.
func (w *walker) takeUU(text []byte) []byte {
	const mark = "begin "
	var rest []byte
	kept := 0
	for at := 0; w.parts < maxParts; {
		if !bytes.HasPrefix(text[at:], []byte(mark)) {
			n := bytes.Index(text[at:], []byte("\n"+mark))
			if n < 0 {
				break
			}
			at += n + 1
		}
		f, next, ok := decode.FindUU(text, at)
		if ok {
			rest = append(rest, text[kept:at]...)
			kept = next
			w.parts++
			w.out.Files = append(w.out.Files, File{Filename: f.Name, ContentType: message.TypeByFilename(f.Name),
				Disposition: "attachment", Content: f.Content()})
		}
		at = next
	}
	if kept == 0 {
		return text
	}
	return append(rest, text[kept:]...)
}
