package tidegate.net;

import io.netty.bootstrap.ChannelInitializerExtension;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelOutboundHandlerAdapter;
import io.netty.channel.ChannelPromise;
import io.netty.channel.ServerChannel;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.net.UnknownHostException;

/**
 * Binds every Netty server that asks for the wildcard address to 127.0.0.1.
 *
 * <p>Spark's streaming shuffle opens its servers on the wildcard address, without authentication, and no setting
 * changes that. Netty loads this class through ServiceLoader when the property io.netty.bootstrap.extensions is
 * "serviceload".
 */
public final class LoopbackOnly extends ChannelInitializerExtension {
  @Override
  public void postInitializeServerListenerChannel(ServerChannel channel) {
    channel.pipeline().addLast(new Binder());
  }

  /** The address to bind instead of a requested one: 127.0.0.1 for the wildcard address, else the same. */
  static SocketAddress onLoopback(SocketAddress requested) {
    if (requested instanceof InetSocketAddress inet
        && inet.getAddress() != null
        && inet.getAddress().isAnyLocalAddress()) {
      try {
        return new InetSocketAddress(InetAddress.getByAddress(new byte[] {127, 0, 0, 1}), inet.getPort());
      } catch (UnknownHostException impossible) {
        throw new IllegalStateException(impossible);
      }
    }
    return requested;
  }

  private static final class Binder extends ChannelOutboundHandlerAdapter {
    @Override
    public void bind(ChannelHandlerContext context, SocketAddress address, ChannelPromise promise) {
      context.bind(onLoopback(address), promise);
    }
  }
}
