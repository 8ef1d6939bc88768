package message

import (
	"mime"
	"slices"
	"testing"
)

func TestTypeByFilename(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"a.pdf": "application/pdf", "A.PDF": "application/pdf", "a.tar.gz": "application/gzip", "dir.pdf/a.png": "image/png",
		`C:\x.y\a.ics`: "text/calendar", "a.pdf. ": "application/pdf", ".html": "text/html", "invite.ics": "text/calendar",
		"": octetStream, "a": octetStream, "a.": octetStream, "a.unknown": octetStream, "a.pdf/b": octetStream,
		"attachment-0": octetStream,
	} {
		if got := TypeByFilename(name); got != want {
			t.Errorf("%q is %s, want %s", name, got, want)
		}
	}
	for ext, mediaType := range mediaTypes {
		if parsed, _, err := mime.ParseMediaType(mediaType); err != nil && parsed == "" {
			t.Errorf("type of %s: %v", ext, err)
		}
		if extension("x."+ext) != ext {
			t.Errorf("extension %s is not in lower case", ext)
		}
		if RefusedExtension("x." + ext) {
			t.Errorf("extension %s has a type and is refused", ext)
		}
	}
}

func TestRefusedExtension(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"a.exe", "a.EXE", "a.pdf.exe", "a.exe.", "a.exe . .", "a.exe::$DATA", "a.exe :x", "b/a.js", `b\a.vbs`, ".bat",
		"a.com", "a.cmd",
		"a.jse", "a.vbe", "a.ps1", "a.msi", "a.msp", "a.reg", "a.scr", "a.lnk", "a.url", "a.hta", "a.chm", "a.cpl", "a.pif",
		"a.sys",
		"a.tmp", "a.app", "a.mdb", "a.mde", "a.adp", "a.jar", "a.dll", "a.wsf", "a.xll", "a.ade", "a.wsh", "a.xnk",
	} {
		if !RefusedExtension(name) {
			t.Errorf("%q is not refused", name)
		}
	}
	for _, name := range []string{"", "exe", "a", "a.pdf", "a.exe.pdf", "exe.zip", "a.exe/b.txt", "a.json", "a.docx",
		"a.zip", "a.eml", "a.jsx"} {
		if RefusedExtension(name) {
			t.Errorf("%q is refused", name)
		}
	}
	if !slices.IsSorted(refusedExtensions) {
		t.Error("the refused extensions are not sorted, so some are not found")
	}
}
