<?php

// Checks and runs examples one after another in one process. Each line of the input is "check" or "run" and the path of
// an example. What an example prints is written as it is. The line after it begins with the record separator and says
// whether the example succeeded.

set_error_handler(function (int $level, string $message) {
    throw new ErrorException($message);
});

function run(string $path): void
{
    require $path;
}

while (($line = fgets(STDIN)) !== false) {
    [$action, $path] = explode(' ', rtrim($line, "\n"), 2);
    $result = 'ok';
    try {
        token_get_all(file_get_contents($path), TOKEN_PARSE);
        if ($action === 'run') {
            run($path);
        }
    } catch (Throwable $error) {
        $result = str_replace("\n", ' ', get_class($error) . ': ' . $error->getMessage());
    }
    echo "\n\x1e", $result, "\n";
}
