package mailparse

import (
	"bytes"

	"github.com/postrider/postrider/internal/mail/decode"
	"github.com/postrider/postrider/internal/mail/message"
)

// takeUU removes the uuencoded files from a text, adds them to the message's files, and returns the remaining text.
//
// Old programs put files into the text of messages that are not MIME and do not mention them in the header. Readers
// differ: Thunderbird and Outlook show them as attachments, Python's email package and MimeKit leave the text
// unchanged. A user of an API has no other way to get such a file, so takeUU follows Thunderbird's rule: it looks for
// files only if the message has neither MIME-Version nor Content-Type.
//
// Thunderbird accepts any line that looks like the beginning of a file, and so may mistake prose for one. For takeUU,
// the file must be complete and valid to its last character; everything else remains text. Files beyond maxParts remain
// text too.
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
