package org.apache.curator.test;

import java.io.Closeable;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;

/**
 * Stands where curator-test has its class of this name, which runs ZooKeeper's server in the JVM: here it is a Headrace
 * keeper in a process of its own. To stop it is to kill it, so that every restart in Curator's tests is one after a
 * crash.
 */
public class TestingServer implements Closeable {
    private static final long START_MS_MAX = TimeUnit.MINUTES.toMillis(2);
    private static final Set<Process> RUNNING = ConcurrentHashMap.newKeySet();

    static {
        Runtime.getRuntime().addShutdownHook(new Thread(() -> RUNNING.forEach(Process::destroyForcibly)));
    }

    private final InstanceSpec spec;
    private final int port;
    private Process process;
    private boolean closed;

    public TestingServer() throws Exception {
        this(-1, null, true);
    }

    public TestingServer(boolean start) throws Exception {
        this(-1, null, start);
    }

    public TestingServer(int port) throws Exception {
        this(port, null, true);
    }

    public TestingServer(int port, boolean start) throws Exception {
        this(port, null, start);
    }

    public TestingServer(int port, File tempDirectory) throws Exception {
        this(port, tempDirectory, true);
    }

    public TestingServer(int port, File tempDirectory, boolean start) throws Exception {
        this(new InstanceSpec(tempDirectory, Math.max(0, port), -1, -1, true, -1), start);
    }

    public TestingServer(InstanceSpec spec, boolean start) throws Exception {
        this.spec = spec;
        this.port = spec.getPort() > 0 ? spec.getPort() : InstanceSpec.getRandomPort();
        if (start) {
            start();
        }
    }

    public int getPort() {
        return port;
    }

    public File getTempDirectory() {
        return spec.getDataDirectory();
    }

    public String getConnectString() {
        return spec.getHostname() + ":" + port;
    }

    public synchronized void start() throws Exception {
        if (closed) {
            throw new IllegalStateException("the server is closed");
        }
        if (process != null) {
            return;
        }
        File directory = spec.getDataDirectory();
        Files.createDirectories(directory.toPath());
        File config = new File(directory, "zoo.cfg");
        StringBuilder lines = new StringBuilder();
        lines.append("dataDir=").append(directory.getCanonicalPath()).append('\n');
        lines.append("clientPort=").append(port).append('\n');
        lines.append("clientPortAddress=127.0.0.1\n4lw.commands.whitelist=*\n");
        if (spec.getTickTime() > 0) {
            lines.append("tickTime=").append(spec.getTickTime()).append('\n');
        }
        if (spec.getMaxClientCnxns() >= 0) {
            lines.append("maxClientCnxns=").append(spec.getMaxClientCnxns()).append('\n');
        }
        for (Map.Entry<String, Object> each : spec.getCustomProperties().entrySet()) {
            lines.append(each.getKey()).append('=').append(each.getValue()).append('\n');
        }
        for (String name : System.getProperties().stringPropertyNames()) {
            // What a test sets for the server, which is in its JVM as a rule.
            if (name.startsWith("znode.container.") || name.endsWith("superDigest")) {
                lines.append(name).append('=').append(System.getProperty(name)).append('\n');
            }
        }
        Files.writeString(config.toPath(), lines);
        List<String> command = new ArrayList<>(List.of(System.getProperty("headrace.keeper").split("\n")));
        command.add(config.getPath());
        process = new ProcessBuilder(command)
                .redirectErrorStream(true)
                .redirectOutput(ProcessBuilder.Redirect.appendTo(new File(directory, "keeper.out")))
                .start();
        RUNNING.add(process);
        awaitStart();
    }

    private void awaitStart() throws Exception {
        long end = System.currentTimeMillis() + START_MS_MAX;
        while (!serves()) {
            if (!process.isAlive() || System.currentTimeMillis() > end) {
                String said = Files.readString(new File(spec.getDataDirectory(), "keeper.out").toPath());
                kill();
                throw new IllegalStateException("the keeper does not serve: " + said);
            }
            Thread.sleep(10);
        }
    }

    private boolean serves() {
        try (Socket socket = new Socket("127.0.0.1", port)) {
            socket.getOutputStream().write("ruok".getBytes(StandardCharsets.US_ASCII));
            InputStream in = socket.getInputStream();
            return new String(in.readAllBytes(), StandardCharsets.US_ASCII).equals("imok");
        } catch (IOException ignored) {
            return false;
        }
    }

    public synchronized void stop() throws IOException {
        kill();
    }

    private void kill() {
        if (process == null) {
            return;
        }
        process.destroyForcibly();
        try {
            process.waitFor();
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
        RUNNING.remove(process);
        process = null;
    }

    public synchronized void restart() throws Exception {
        if (closed) {
            throw new IllegalStateException("the server is closed");
        }
        kill();
        start();
    }

    @Override
    public synchronized void close() throws IOException {
        if (closed) {
            return;
        }
        kill();
        closed = true;
        if (spec.deleteDataDirectoryOnClose()) {
            DirectoryUtils.deleteRecursively(spec.getDataDirectory());
        }
    }
}
