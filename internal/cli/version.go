package cli

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
)

// Version is this program's version: the tag of the source, or a pseudo-version that contains the commit. Builds
// without a tag or commit, such as those made by `go run`, have the version "dev".
var Version = readBuild(debug.ReadBuildInfo()).version

// build describes how the program was built. Unknown texts are "unknown", except for the version.
type build struct {
	version, commit, date string // the date is that of the commit, so that it is the same in each build
}

func readBuild(info *debug.BuildInfo, ok bool) build {
	b := build{version: "dev", commit: "unknown", date: "unknown"}
	if !ok {
		return b
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		b.version = v
	}
	modified := false
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.commit = s.Value
		case "vcs.time":
			b.date = s.Value
		case "vcs.modified":
			modified = s.Value == "true"
		}
	}
	if modified {
		b.commit += " with changes"
	}
	return b
}

// String returns the build as `postrider version` prints it.
func (b build) String() string {
	return fmt.Sprintf("postrider %s (commit %s, date %s, %s %s/%s)", b.version, b.commit, b.date, runtime.Version(),
		runtime.GOOS, runtime.GOARCH)
}

func versionCommand() command {
	return command{use: "version", group: groupTools, short: "print the version, the commit and its date",
		long:    "Prints the version of this program, the commit and its date, the version of Go, and the platform.",
		example: "postrider version",
		define: simple(func(_ context.Context, e *env, _ []string) error {
			b := readBuild(debug.ReadBuildInfo())
			return e.done(struct {
				Version string `json:"version"`
				Commit  string `json:"commit"`
				Date    string `json:"date"`
				Go      string `json:"go"`
				OS      string `json:"os"`
				Arch    string `json:"arch"`
			}{b.version, b.commit, b.date, runtime.Version(), runtime.GOOS, runtime.GOARCH}, b.String())
		})}
}
